"""The demo: a drive played to the nodes over ROS, evaluated against ground truth."""
