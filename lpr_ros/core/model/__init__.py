"""The place model: backbone, pooling, whitening, checkpoints."""
