"""The `mxr` command: words on the screen, no logic."""
