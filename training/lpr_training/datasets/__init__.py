"""Dataset readers and writers, one module per format."""
