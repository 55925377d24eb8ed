"""Adapters that forward verified loop closures to SLAM back-ends."""
