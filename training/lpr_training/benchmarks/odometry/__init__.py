"""Drift of LiDAR odometry."""
