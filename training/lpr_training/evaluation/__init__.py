"""The protocols end to end: a dataset and a method in, numbers, a table and figures out."""
