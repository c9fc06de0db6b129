"""Known failures of MIGraphX and its consumers: tables of error texts, and the explainer that finds them in a log."""
