"""Lock files: read and write them, pin artifacts, fetch what is pinned, and check it."""
