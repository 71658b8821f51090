"""Measurement of the product under injected network delay."""
