"""What the offline commands in training/ are made of."""
