"""Things that stand in a world, each made in its own frame: x forward or along, z up."""
