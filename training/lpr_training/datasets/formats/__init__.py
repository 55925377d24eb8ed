"""File formats shared by datasets."""
