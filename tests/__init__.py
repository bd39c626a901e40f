"""A package, so that processes started by a test find its functions: some wheels bring a ``tests`` of their own."""
