"""Use cases. Each takes a session or a `Change` and plain values; none commits, none knows HTTP."""
