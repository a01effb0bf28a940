"""The I/O to a provider: slots, the HTTP client, failures."""
