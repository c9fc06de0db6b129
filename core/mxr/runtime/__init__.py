"""Loading a fetched program in this process, by MIGraphX or by ONNX Runtime."""
