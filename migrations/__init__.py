"""Migrations of the control plane's database: the only way to a schema, also in tests."""
