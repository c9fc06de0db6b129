"""The child process that reads a stranger's file: a model or calibration data before a compile, a program after it.

Called by `reading` as `python -m mxr_workers.reading_child`, with the task as JSON on standard input. It writes one
JSON document: the result, or an error.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mxr.errors import DamagedError, MxrError
from mxr.sandbox.policy import close_reader


def main() -> None:
    """Limit the resources of this process, read the file, and write the result."""
    task = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w")
    # Keep output of libraries out of the result.
    os.dup2(2, 1)
    # Not the address space: a file is mapped as a whole, however large it is.
    resource.setrlimit(resource.RLIMIT_DATA, (task["memory"], task["memory"]))
    resource.setrlimit(resource.RLIMIT_CPU, (task["cpu"], task["cpu"]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    close_reader(Path(__file__).parent, *(Path(task[name]) for name in ("path", "model") if name in task))
    try:
        readers = {"model": _check_model, "calibration": _check_calibration, "program": _describe}
        reply: Mapping[str, Any] = {"result": readers[task["what"]](task)}
    except MxrError as problem:
        reply = {"error": problem.to_json()}
    except (MemoryError, RecursionError):
        reply = {"error": DamagedError(f"{task['path']} needs more memory than a worker allows.").to_json()}
    with out:
        json.dump(reply, out)


def _check_model(task: Mapping[str, Any]) -> None:
    from mxr.onnxfile import check_folder, read_model

    check_folder(read_model(Path(task["path"])), set(task["external"]))


def _check_calibration(task: Mapping[str, Any]) -> None:
    from mxr.artifact.key import inputs_from_json
    from mxr.onnxfile import read_model
    from mxr.request import calibration

    inputs = read_model(Path(task["model"])).inputs
    calibration.check_calibration(Path(task["path"]), inputs, inputs_from_json(task["inputs"], "inputs"))


def _describe(task: Mapping[str, Any]) -> Mapping[str, Any]:
    from mxr.program.reader import describe_file

    return describe_file(Path(task["path"])).to_json()


if __name__ == "__main__":
    main()
