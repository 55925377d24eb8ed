"""Descriptors of datasets, and the Scan Context baseline."""
