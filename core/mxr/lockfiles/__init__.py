"""Lock files: reading, writing, pinning and checking."""
