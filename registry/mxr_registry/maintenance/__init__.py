"""Maintenance of a whole registry: migrate, sweep, fsck, move."""
