"""LiDAR odometry: poses from point clouds alone."""
