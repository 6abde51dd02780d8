"""Seeded workloads and a discrete-event cluster that runs the same routing code as the router."""
