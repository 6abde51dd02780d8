"""Workers that speak vLLM's wire format at the pace of the latency model, and the load that drives them."""
