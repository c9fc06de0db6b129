"""Checks the input of a job before a child process gets any of it, without relying on the registry."""

from __future__ import annotations

from pathlib import Path

from mxr.errors import DamagedError, UsageError
from mxr.protocol.jobs import Lease

from .reading import check_calibration, check_external_data


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
