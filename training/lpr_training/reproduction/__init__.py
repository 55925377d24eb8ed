"""From raw or benchmark files to the paper's tables and figures, stage by stage."""
