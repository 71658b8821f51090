"""A soak: hours of connecting, cutting and cancelling on a verifier process, which must stay as small as it was."""
