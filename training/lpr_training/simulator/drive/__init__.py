"""Drives through a world: routes, traffic, odometry."""
