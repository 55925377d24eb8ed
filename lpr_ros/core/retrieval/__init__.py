"""First half of the pipeline: scans to keyframes, descriptors, matches and candidates."""
