"""Pure functions from a request to a request."""
