"""Installs artifacts where their consumers read them, and verifies what was installed."""
