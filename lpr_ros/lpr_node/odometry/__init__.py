"""Where lpr_node gets its odometry from if nobody publishes it: tf, or the clouds themselves."""
