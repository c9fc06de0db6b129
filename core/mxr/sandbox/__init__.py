"""Walls around a child process that parses foreign bytes or runs a compiled program: a policy in, a report out."""
