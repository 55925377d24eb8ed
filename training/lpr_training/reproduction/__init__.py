"""Reproduce the tables and figures of the paper from raw or benchmark files."""
