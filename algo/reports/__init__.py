"""What reports of any workload are made of: numbers with intervals, pictures, parts of pages."""
