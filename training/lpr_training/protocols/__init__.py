"""Who may match whom, and what counts as a true match, per benchmark."""
