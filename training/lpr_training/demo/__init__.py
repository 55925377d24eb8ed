"""The demonstration: a drive, three processes that talk ROS, and what came of it."""
