"""The `mxr` command line client: parses options, calls the core, prints results."""
