"""What `python training/benchmark.py` measures, one file per subcommand."""
