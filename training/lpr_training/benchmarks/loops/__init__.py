"""Loop closures of whole drives."""
