"""The functions of `import mxr`: the operations of the `mxr` command for use in programs. See docs/python.md."""
