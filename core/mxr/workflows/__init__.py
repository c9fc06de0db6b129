"""The main operations: fetch, compile, push, freeze and survey."""
