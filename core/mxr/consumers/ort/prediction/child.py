"""Optimizes graphs and infers shapes with ONNX Runtime. Runs in the interpreter that has it, which may lack mxr.

Standard input and output carry one JSON document per line. The first line of the output has the version.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any


def main() -> None:
    """Answer tasks until standard input ends."""
    runtime = import_module("onnxruntime")
    _send({"version": runtime.__version__})
    for line in sys.stdin:
        task = json.loads(line)
        try:
            reply = _serve(runtime, task)
        except Exception as problem:
            reply = {"error": f"{problem}"[:600]}
        _send(reply)


def _send(reply: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


def _serve(runtime: Any, task: dict[str, Any]) -> dict[str, Any]:
    settings = runtime.SessionOptions()
    levels = runtime.GraphOptimizationLevel
    settings.graph_optimization_level = (
        levels.ORT_DISABLE_ALL if task["level"] == "disable" else levels.ORT_ENABLE_BASIC
    )
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    settings.add_session_config_entry("session.disable_prepacking", "1")
    if task.get("out"):
        settings.optimized_model_filepath = task["out"]
    session = runtime.InferenceSession(task["model"], settings, providers=["CPUExecutionProvider"])
    return {"shapes": {each.name: each.shape for each in session.get_outputs()}}


main()
