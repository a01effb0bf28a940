"""One file for each kind of upstream, facts only."""
