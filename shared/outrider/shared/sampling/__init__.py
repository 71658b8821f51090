"""Shaping the target's distribution and choosing from it with noise that both ends can compute."""
