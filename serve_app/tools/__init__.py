"""What the caller's tools say of a call: its forms in text, its arguments, their schema.

Rules of this folder:
1. No I/O: a schema that points at another machine is refused, never fetched.
2. A value is changed only where the schema leaves one reading of it; all else fails validation.
3. What a model or a caller can make long, deep or slow is bounded.
"""
