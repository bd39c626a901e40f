"""Runners: dequeue rollouts from the hub, play them, store their spans. Never import torch, verl, vllm or ``algo``."""

import store as _store  # sets the environment that agentlightning's import reads
