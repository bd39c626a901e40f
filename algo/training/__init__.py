"""verl's workers on Ray, on GPU or CPU, and how their weights leave."""
