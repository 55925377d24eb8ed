"""python -m lpr_ros.lpr_node: run lpr_node."""

import sys

from lpr_ros.command import lpr_node

sys.exit(lpr_node())
