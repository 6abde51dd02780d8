"""Records an expert trace through a live fleet: prompts in, counts of prefill and decode out."""
