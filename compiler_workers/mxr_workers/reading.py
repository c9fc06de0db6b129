"""Reads the files of strangers in a child process with limits: a worker must survive whatever a model contains.

The input of a job is checked before a child gets any of it, without relying on the registry.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mxr.errors import DamagedError, UsageError, from_json
from mxr.protocol.jobs import Lease

MEMORY = 1 << 30
"""Bytes of memory of the child, apart from the file, which it maps."""

CPU_SECONDS = 60
WALL_SECONDS = 300.0
"""Seconds until the child is killed: a file of some GB on a slow disk takes a while."""

COMMAND = (sys.executable, "-m", "mxr_workers.reading_child")

ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
"""The variables of the child: what Python needs to start and to find its modules. Secrets stay here."""


def check_external_data(onnx: Path, external: Collection[str]) -> None:
    """Check that an ONNX file reads exactly these files of its folder, and no links.

    Raises `DamagedError` and `UsageError`.
    """
    _run({"what": "model", "path": str(onnx), "external": sorted(external)})


def check_calibration(path: Path, onnx: Path, inputs: Mapping[str, Any]) -> None:
    """Check calibration data against the inputs of an ONNX file and the shapes of a key, in their JSON form.

    Raises `DamagedError` and `UsageError`.
    """
    _run({"what": "calibration", "path": str(path), "model": str(onnx), "inputs": inputs})


def describe_program(path: Path) -> Mapping[str, Any]:
    """Return the description of a program (the document of `mxr inspect --json`).

    Raises `DamagedError` and `UsageError`.
    """
    found: Mapping[str, Any] = _run({"what": "program", "path": str(path)})
    return found


def _run(task: Mapping[str, Any]) -> Any:
    order = json.dumps({**task, "memory": MEMORY, "cpu": CPU_SECONDS})
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    try:
        child = subprocess.run(
            COMMAND,
            input=order.encode(),
            capture_output=True,
            env=environment,
            timeout=WALL_SECONDS,
            start_new_session=True,
            check=False,
        )
        reply = json.loads(child.stdout)
    except subprocess.TimeoutExpired:
        raise _unreadable(task, f"took more than {WALL_SECONDS:g} seconds") from None
    except ValueError:
        said = child.stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
        raise _unreadable(task, f"ended its process with status {child.returncode}. {said}".rstrip(". ")) from None
    if "error" in reply:
        raise from_json(reply["error"])
    return reply["result"]


def _unreadable(task: Mapping[str, Any], why: str) -> DamagedError:
    return DamagedError(f"Reading {task['path']} {why}.")


class RefusedInput(DamagedError):
    """The job has an input that no compile may read."""


def check_model(folder: Path, lease: Lease) -> None:
    """Check that the model in `folder` reads only the files of the lease, and no symbolic links. Raises `RefusedInput`.

    MIGraphX and ONNX Runtime open every file that an ONNX file names, with the rights of this worker.
    """
    if lease.key.options and lease.key.form != "whole":
        raise RefusedInput("ONNX Runtime does not pass options to MIGraphX: its files cannot be recorded with any.")
    names = {file.name for file in lease.model.files}
    if lease.onnx not in names:
        raise RefusedInput(f"The model of this job has no file {lease.onnx!r}.")
    try:
        check_external_data(folder / lease.onnx, names - {lease.onnx})
    except (DamagedError, UsageError) as problem:
        raise RefusedInput(problem.message, hint=problem.hint) from problem


def check_samples(path: Path, folder: Path, lease: Lease) -> None:
    """Check the calibration data of a lease against its model in `folder`. Raises `RefusedInput` with the input."""
    try:
        check_calibration(path, folder / lease.onnx, lease.key.to_json()["inputs"])
    except (DamagedError, UsageError) as problem:
        raise RefusedInput(problem.message, hint=problem.hint) from problem
