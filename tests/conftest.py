"""What all tests share: the check of the contract's clauses (`tests/clauses.py`)."""

pytest_plugins = ["tests.clauses", "pytester"]
