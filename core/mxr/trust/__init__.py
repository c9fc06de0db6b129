"""Signed records: keys, envelopes, and the statements about artifacts. Small enough to be audited in an hour."""
