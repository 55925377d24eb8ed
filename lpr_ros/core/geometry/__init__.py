"""Rigid transforms, trajectories, point clouds and the odometry noise model."""
