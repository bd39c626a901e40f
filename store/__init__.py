"""The contract between algorithm and runners: tasks, spans and resources, which the hub stores.

Imports neither ``algo``, ``runners`` nor torch, so that both sides can depend on it.
"""

import gc
import os

# By default Python looks for garbage after every 700 new objects, which is a tenth of the time that a process needs to
# import vLLM or verl.
gc.set_threshold(50_000)

# agentlightning imports litellm whole, which otherwise tries to fetch a price list at every start.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
