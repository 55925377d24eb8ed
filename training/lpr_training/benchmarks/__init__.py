"""Measurements, one file per part; `training/benchmark.py` runs them."""
