"""The child that compiles, run by the path of this folder under any interpreter that has migraphx.

    PYTHON -B .../mxr_workers/compiler about|probe|compile|verify|runtime|session REPORT_FD  < order.json

It reads one JSON order and writes JSON lines to the file descriptor REPORT_FD: `{"phase"}` and `{"warning"}` as it
goes, last `{"result"}` or `{"failed": {"kind","name","type","message","phase"}}`. A child that dies leaves neither.

    __main__    one order, one ending
    library     the one file that imports migraphx: what this release offers, and its targets
    compiling   parse, quantise, compile, save;   calibration: the samples for int8 and fp8
    trial       load a saved program in a fresh process and run it;   values: shapes, and generated inputs
    session     the one file that imports onnxruntime: a session that writes its provider's files, or loads them
    report      the lines to the parent, and refusals

Nothing here imports anything but the standard library, numpy, migraphx and onnxruntime, and all keeps to the words of
Python 3.8: releases of ROCm bring interpreters where mxr is not installed. What a release lacks is found by looking
(pybind11 writes each signature into the docstring), not by its version number.
"""
