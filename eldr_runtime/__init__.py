"""Numerics, simulator, vLLM plugin and router of ELDR."""
