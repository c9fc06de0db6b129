"""Alembic migrations of the registry's database. The registry passes this package to Alembic and never imports it."""
