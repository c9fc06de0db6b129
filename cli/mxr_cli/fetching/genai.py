"""`mxr fetch --genai-config`: one fetch for each model that a genai_config.json runs with MIGraphX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr import onnxfile
from mxr.errors import MxrError
from mxr.request import genai_config
from mxr_cli.output import echo, note

from .dispatch import fetch_model

if TYPE_CHECKING:
    from mxr_cli.options import Session

    from .fetch_options import FetchOptions


def fetch_genai_models(session: Session, options: FetchOptions) -> dict[str, Any]:
    """Fetch every program that a configuration needs. Returns the JSON document.

    When some fail, the others are fetched all the same and their paths printed; then the first error is raised.
    """
    assert options.genai_config is not None
    session = replace(session, takes_open=False)
    documents: list[dict[str, Any]] = []
    errors: list[MxrError] = []
    for label, each in _calls(options, Path(options.genai_config)):
        try:
            documents.append({"part": label} | fetch_model(session, each))
        except MxrError as error:
            error.message = f"{label}: {error.message}"
            error.detail["part"] = label
            errors.append(error)
    if not errors:
        return {"config": options.genai_config, "entries": documents}
    if not session.as_json:
        for document in documents:
            echo(document["path"])
    for other in errors[1:]:
        note(f"mxr: {other.message}")
    raise errors[0]


def _calls(options: FetchOptions, file: Path) -> Iterator[tuple[str, FetchOptions]]:
    """A label and the options of a fetch for each program. Command line options override the configuration."""
    config = genai_config.read(file)
    for line in config.notes:
        note(f"mxr: {line}")
    request = options.request
    for part in config.parts:
        onnx = onnxfile.read_model(part.path)
        names = {each.name for each in onnx.inputs}
        given = {name: shape for name, shape in request.inputs if name in names}
        batches = options.batches or ((request.batch,) if request.batch else part.batches) or (None,)
        for batch in batches:
            inputs = dict(part.inputs(onnx, batch)) | given
            label = part.label + (f"-b{batch}" if len(batches) > 1 else "")
            wanted = replace(
                request,
                consumer=request.consumer or "ort",
                precision=request.precision or part.precision,
                tuning=request.tuning or part.tuning,
                batch=batch,
                inputs=tuple(inputs.items()),
            )
            output = None if options.output is None else f"{options.output}/{label}/"
            yield label, replace(options, request=wanted, batches=(), model=str(part.path), output=output)
