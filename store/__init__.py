"""The contract between algorithm and runners: tasks, spans and resources, which the hub stores.

Imports neither ``algo``, ``runners`` nor torch, so that both sides can depend on it.
"""

import os

# agentlightning imports litellm whole, which otherwise tries to fetch a price list at every start.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
