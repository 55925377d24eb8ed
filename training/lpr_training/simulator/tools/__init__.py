"""Export, previews and suites of simulated drives."""
