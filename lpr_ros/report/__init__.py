"""The report of a drive: figures and a self-contained HTML page."""
