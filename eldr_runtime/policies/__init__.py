"""Routing policies, one file a family, built by name from the registry."""
