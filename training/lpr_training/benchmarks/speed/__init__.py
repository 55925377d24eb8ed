"""Speed: descriptor, database, node, simulator, training."""
