"""pose_graph_node: optimizes keyframes and loop closures into a corrected path and map -> odom."""
