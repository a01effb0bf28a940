"""Sans-I/O steps: bytes and events in, events and bytes out."""
