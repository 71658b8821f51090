"""Which draft model is best for a target here, by acceptance, speed and what the product makes of both."""
