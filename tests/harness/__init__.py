"""What tests and benches share: the programs as processes, a registry, and the servers behind it."""
