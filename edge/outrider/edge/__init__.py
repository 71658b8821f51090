"""The device side of edge-cloud decoding."""
