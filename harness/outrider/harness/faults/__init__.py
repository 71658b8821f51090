"""Answers amid faults, in virtual time: what goes wrong is drawn from a seed, and the same seed goes wrong alike."""
