"""Run nodes in their own processes, for the demo and the benchmarks."""
