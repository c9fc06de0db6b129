"""What is said for ONNX Runtime alone: which contract its file names follow, and where its optimiser is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .output import watch

if TYPE_CHECKING:
    from mxr.request.builder import Options

    from .options import Session

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = (
    click.option(
        "--ort",
        metavar="WHICH",
        help="With --for ort: the ONNX Runtime to serve: its version, A, B, B', C, D, or its provider's library.",
    ),
    click.option("--ort-python", metavar="PATH", help="With --for ort: an interpreter that has that ONNX Runtime."),
    click.option(
        "--ort-migraphx", metavar="VERSION", help="With --for ort: the MIGraphX that its provider was built with."
    ),
    click.option("--ort-level", metavar="LEVEL", help="With --for ort: the level of the session: all, basic, disable."),
    click.option("--ort-bytes", is_flag=True, help="With --for ort: the session is made from bytes, not from a file."),
)
SAID = ("ort", "ort_python", "ort_migraphx", "ort_level", "ort_bytes")


def ort_options(command: F) -> F:
    """Adds the options that ONNX Runtime alone needs."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def record(session: Session, folder: Path, options: Options, model: str, said: Mapping[str, str]) -> dict[str, Any]:
    """Publishes what ONNX Runtime wrote to `folder` for MODEL; the document of `mxr import --ort-cache`."""
    from mxr.install.ort_cache import record as publish
    from mxr.request import model as subjects

    subject = subjects.find(model, session.cache(), session.client)
    artifact = publish(folder, options, subject, said, session.client(), watch("recording"))
    files = [file.name for file in artifact.manifest.files] if artifact.manifest else []
    return {"id": artifact.id, "digest": artifact.digest, "key": artifact.key.to_json(), "files": files}
