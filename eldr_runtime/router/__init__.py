"""The data plane: an OpenAI-compatible streaming proxy that chooses the decode worker after prefill."""
