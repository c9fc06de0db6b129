"""Builds requests from a model, the options of a user and the facts of the host."""
