"""The `eldr` commands of the runtime."""
