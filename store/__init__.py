"""The narrow waist: what the algorithm and the runners say to each other through the hub.

Imports neither ``algo``, ``runners`` nor torch, so that both sides can depend on it.
"""
