"""Training, validation and test splits of the benchmarks."""
