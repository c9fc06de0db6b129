"""The commands of `mxr`, one module each: the name of the command, with `_` for `-` and after a Python keyword."""
