"""The `eldr` command: the runtime's commands, the control plane's, and `up`, which runs everything."""
