"""Loads a fetched program in this process, with MIGraphX or ONNX Runtime."""
