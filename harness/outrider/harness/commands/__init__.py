"""Commands of the harness."""
