"""How `mxr fetch` gets one program, a set of batch sizes, the entries of a lock, or the models of a genai_config."""
