"""Training: data, augmentation, mining, losses and the training loop."""
