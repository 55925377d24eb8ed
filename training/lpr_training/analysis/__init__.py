"""Computations behind the figures of the paper: ICA, rank, Wasserstein distance."""
