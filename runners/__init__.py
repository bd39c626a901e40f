"""Runners: take games from the hub, play them, store their spans. Never import torch, verl, vllm or ``algo``."""
