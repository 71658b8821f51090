"""What edge and cloud hold in common: the token tree, the choice rule, messages, errors, the model store."""
