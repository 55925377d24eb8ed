"""lpr_player: publish a recording as ROS topics."""
