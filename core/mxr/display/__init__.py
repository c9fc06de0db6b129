"""Showing text: control characters and CI commands in it are escaped, and secrets are left out.

Names, messages and logs come from models, registries and workers of other people. Every program writes to a terminal,
a log or a report through this package only.
"""
