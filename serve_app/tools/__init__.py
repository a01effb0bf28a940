"""Tool calls that a model writes as text."""
