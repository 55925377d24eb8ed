"""The second half of the pipeline: from candidates to verified, consistent loop closures."""
