"""Readers and writers of every dataset layout, one file each."""
