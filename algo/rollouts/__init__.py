"""Enqueues, adopts and collects rollouts in the hub, and reads their spans as triplets."""
