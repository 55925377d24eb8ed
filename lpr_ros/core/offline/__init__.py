"""The pipeline over a whole recording: run, result, evaluation, export."""
