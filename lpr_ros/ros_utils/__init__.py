"""ROS helpers shared by the nodes: parameters, QoS, optional interfaces, spinning."""
