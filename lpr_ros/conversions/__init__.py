"""Conversions between ROS messages and core types."""
