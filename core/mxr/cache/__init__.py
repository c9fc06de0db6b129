"""The local cache of programs, and the log of their uses."""
