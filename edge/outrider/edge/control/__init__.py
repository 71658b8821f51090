"""Policies that decide how far to draft and what to send."""
