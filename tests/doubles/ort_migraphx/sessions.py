"""Open sessions of the real ONNX Runtime, one for each line of standard input, and print the result of each.

A line is `{"mark","model","cache","bytes","level","options","run"}`. This runs in the judge's own interpreter, in which
mxr is not installed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import onnxruntime

LEVELS = {
    "disable": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}


def mark(word):
    """Begin a new section in the log that the stand-ins write."""
    with Path(os.environ["MXR_DOUBLE_LOG"]).open("a") as log:
        log.write(f"mark\t{word}\n")


def run(session, shapes):
    """Run a session once with zeros; open dims take their sizes from `shapes`."""
    feeds = {
        each.name: np.zeros(shapes.get(each.name) or [int(dim) for dim in each.shape], TYPES[each.type])
        for each in session.get_inputs()
    }
    return [list(each.shape) for each in session.run(None, feeds)]


def main():
    for line in sys.stdin:
        task = json.loads(line)
        settings = onnxruntime.SessionOptions()
        settings.graph_optimization_level = LEVELS[task.get("level", "all")]
        settings.log_severity_level = 4
        model = Path(task["model"]).read_bytes() if task.get("bytes") else task["model"]
        options = dict(task.get("options", {}))
        if task.get("cache"):
            options["migraphx_model_cache_dir"] = task["cache"]
        mark(task["mark"])
        reply = {}
        try:
            session = onnxruntime.InferenceSession(
                model, settings, providers=[("MIGraphXExecutionProvider", options), "CPUExecutionProvider"]
            )
            reply["providers"] = session.get_providers()
            if "run" in task:
                reply["outputs"] = run(session, task["run"])
        except Exception as problem:  # any error is the result that the test examines
            reply["error"] = f"{type(problem).__name__}: {problem}"
        sys.stdout.write(f"reply {json.dumps(reply)}\n")  # ONNX Runtime also writes to standard output
        sys.stdout.flush()


main()
