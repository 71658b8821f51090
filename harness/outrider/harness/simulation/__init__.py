"""Scenarios: who decodes what over which hardware and link, the runs of it, and what is measured."""
