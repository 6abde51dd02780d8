"""What the project ships beside its code."""
