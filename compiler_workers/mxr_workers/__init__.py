"""mxr-worker: compiles the jobs of a registry on a host with the right GPU, each in a sandboxed child process."""
