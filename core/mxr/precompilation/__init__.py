"""Compiling a whole matrix: planning, running, upgrading, reporting."""
