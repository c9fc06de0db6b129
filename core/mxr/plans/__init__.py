"""Programs that one call wants together."""
