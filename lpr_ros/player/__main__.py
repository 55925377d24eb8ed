"""python -m lpr_ros.player: run lpr_player."""

import sys

from lpr_ros.command import lpr_player

sys.exit(lpr_player())
