"""The child process that runs MIGraphX and ONNX Runtime, in any interpreter that has migraphx.

    PYTHON -B .../mxr_workers/compiler describe|probe|compile|verify|runtime|session REPORT_FD  < request.json

The child reads one JSON request from standard input and writes JSON lines to the file descriptor REPORT_FD: `{"phase"}`
and `{"warning"}` while it works, and last either `{"result"}` or
`{"failed": {"kind","name","type","message","phase"}}`. A child that crashes writes no last line.

    __main__         runs the handler of the requested verb, and sets the exit code
    migraphx_module  the only file that imports migraphx; what this release supports, and its targets
    compile          parse, quantize, compile, save
    calibration      calibration samples for int8 and fp8
    verify           load a saved program in a fresh process and run it; probe whether a target works
    tensors          shapes as JSON, and generated inputs
    ort_session      the only file that imports onnxruntime; creates a session that writes or loads provider files
    report           the lines to the parent process, and refusals

These files import only the standard library, numpy, migraphx and onnxruntime, and use only the syntax of Python 3.8:
some ROCm releases ship interpreters in which mxr is not installed. Features of a MIGraphX release are detected by
inspection (pybind11 writes each signature into the docstring), not by version number.
"""
