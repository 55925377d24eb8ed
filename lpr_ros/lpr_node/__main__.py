"""python -m lpr_ros.lpr_node: run lpr_node."""

import sys

from lpr_ros.lpr_node.node import main

sys.exit(main())
