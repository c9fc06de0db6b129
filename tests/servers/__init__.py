"""Real servers that the tests start and stop."""
