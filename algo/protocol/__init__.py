"""The evaluation protocol: one fixed, versioned panel, and every figure that is compared across runs and models."""
