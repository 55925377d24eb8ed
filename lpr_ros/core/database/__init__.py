"""Keyframe storage: descriptors, poses, clouds, nearest-neighbor search, and map files."""
