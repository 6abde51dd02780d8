"""Everything that knows vLLM; what vLLM itself loads is imported by nothing else."""
