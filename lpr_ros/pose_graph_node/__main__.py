"""Run pose_graph_node: python -m lpr_ros.pose_graph_node."""

import sys

from lpr_ros.pose_graph_node.node import main

sys.exit(main())
