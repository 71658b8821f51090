"""The verifier service: sessions, the scheduler that packs them into passes, and the engines that run them."""
