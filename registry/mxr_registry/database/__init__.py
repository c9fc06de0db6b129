"""Engine, sessions, tables and schema of the database."""
