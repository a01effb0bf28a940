"""What all tests share: the check of the contract's clauses, and the profile of `make fuzz`."""

from hypothesis import settings

pytest_plugins = ["tests.clauses", "pytester"]

settings.register_profile("fuzz", max_examples=100_000, deadline=None)
