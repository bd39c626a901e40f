"""The learning run of ``python -m algo.learn`` and its report."""
