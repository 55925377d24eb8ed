"""Worlds: layout, roads, buildings and sites."""
