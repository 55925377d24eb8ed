"""All faults at once, at random, for minutes or hours."""
