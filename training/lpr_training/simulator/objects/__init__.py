"""Objects of a world, each built in its own frame: x forward or along, z up."""
