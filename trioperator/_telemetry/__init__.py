"""What an operator counts and traces, if it is to. Not imported otherwise."""
