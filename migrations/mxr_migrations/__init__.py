"""The steps from each schema of the database to the next. The registry names this package, and never imports it."""
