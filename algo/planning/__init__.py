"""Whether a configuration fits its machines, before anything loads: memory by part, seconds by stage."""
