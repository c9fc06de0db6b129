"""Settings of a registry process."""
