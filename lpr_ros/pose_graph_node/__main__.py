"""Run pose_graph_node: python -m lpr_ros.pose_graph_node."""

import sys

from lpr_ros.command import pose_graph_node

sys.exit(pose_graph_node())
