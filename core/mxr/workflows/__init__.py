"""The main operations: fetch, wait for a compile, push, freeze."""
