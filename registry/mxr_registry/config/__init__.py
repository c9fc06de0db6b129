"""The settings of a registry process."""
