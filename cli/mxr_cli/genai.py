"""`mxr fetch --genai-config`: what the person said, and what the configuration says, made into one request each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr import onnxfile
from mxr.errors import MxrError
from mxr.request import genai_config

from .options import Session
from .output import note, say

if TYPE_CHECKING:
    from .call import FetchCall

    Fetch = Callable[[Session, FetchCall], dict[str, Any]]


def fetch_genai(session: Session, call: FetchCall, fetched: Fetch) -> dict[str, Any]:
    """Fetches every program that a configuration needs by `fetched`; what one lacks keeps none of the others away.

    Raises the first problem when all the others are here, having said their paths.
    """
    documents: list[dict[str, Any]] = []
    problems: list[MxrError] = []
    for label, each in _calls(call):
        try:
            documents.append({"part": label} | fetched(session, each))
        except MxrError as problem:
            problem.message = f"{label}: {problem.message}"
            problem.detail["part"] = label
            problems.append(problem)
    if not problems:
        return {"config": call.flags["genai_config"], "entries": documents}
    for found in documents if not session.as_json else ():
        say(found["path"])
    for other in problems[1:]:
        note(f"mxr: {other.message}")
    raise problems[0]


def _calls(call: FetchCall) -> Iterator[tuple[str, FetchCall]]:
    """For each program a label, and the call for it alone; what the person says wins."""
    config = genai_config.read(Path(call.flags["genai_config"]))
    for line in config.notes:
        note(f"mxr: {line}")
    options = call.options
    for part in config.parts:
        onnx = onnxfile.read_model(part.path)
        names = {each.name for each in onnx.inputs}
        said = dict(options.inputs)
        batches = call.batches or ((options.batch,) if options.batch else part.batches) or (None,)
        for batch in batches:
            closed = dict(part.inputs(onnx, batch)) | {name: shape for name, shape in said.items() if name in names}
            label = part.label + (f"-b{batch}" if len(batches) > 1 else "")
            wanted = replace(
                options,
                consumer=options.consumer or "ort",
                precision=options.precision or part.precision,
                tuning=options.tuning or part.tuning,
                batch=batch,
                inputs=tuple(closed.items()),
            )
            output = None if call.output is None else f"{call.output}/{label}/"
            yield label, replace(call, options=wanted, batches=(), model=str(part.path), output=output)
