"""Utilities for the local machine: atomic files, ports, child processes."""
