"""Honesty of match probabilities on sensors, cities and weights not calibrated on."""
