"""The narrow waist: what the algorithm and the runners say to each other through the hub.

Imports neither ``algo``, ``runners`` nor torch, so that both sides can depend on it.
"""

import os

# agentlightning imports litellm whole, which otherwise tries to fetch a price list at every start.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
