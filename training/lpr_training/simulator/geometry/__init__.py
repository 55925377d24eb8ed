"""Meshes, ground, materials and polylines."""
