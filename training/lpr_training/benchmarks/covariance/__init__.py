"""Covariances of loop closures against reference poses, on real and simulated pairs."""
