"""mxr: the right compiled MIGraphX program for every GPU, and never a wrong one."""
