"""Values and rules of the control plane, free of frameworks: what the API speaks and what decides."""
