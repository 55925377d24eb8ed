"""The benchmarks of `training/benchmark.py`; registry.py lists them."""
