"""Putting programs where their consumer looks for them, and checking them there."""
