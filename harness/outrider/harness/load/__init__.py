"""Load on a real verifier: a target that computes nothing, a server that times rounds, streams that ask for them."""
