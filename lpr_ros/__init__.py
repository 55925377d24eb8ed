"""LiDAR place recognition for ROS 2: the ROS shell. Imports nothing."""
