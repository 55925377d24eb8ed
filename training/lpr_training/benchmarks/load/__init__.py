"""Sustained load: fast sensors and long drives."""
