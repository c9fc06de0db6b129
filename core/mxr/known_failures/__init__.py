"""Known failures of MIGraphX and its consumers, and the explainer that finds them in a log."""
