"""mxr-worker: compiles what is missing on a host that has the GPU, each compile in a guarded child process."""
