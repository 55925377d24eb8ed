"""lpr_node: point clouds and odometry in, loop closures out."""
