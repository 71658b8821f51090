"""Recordings of a real pair: their format, the recorder that makes them, and reading them back."""
