"""What proposes tokens, and how it is named on the command line."""
