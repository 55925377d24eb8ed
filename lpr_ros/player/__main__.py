"""python -m lpr_ros.player: run lpr_player."""

import sys

from lpr_ros.player.node import main

sys.exit(main())
