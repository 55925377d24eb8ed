"""Damaged inputs to every reader of external data."""
