"""Faults injected into running nodes, one at a time."""
