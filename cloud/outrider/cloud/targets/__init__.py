"""Engines behind one small protocol."""
