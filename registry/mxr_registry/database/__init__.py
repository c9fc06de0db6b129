"""Database engine, sessions, tables and schema."""
