"""`mxr fetch --genai-config`: the programs for every model that a genai_config.json runs with MIGraphX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr import onnxfile
from mxr.errors import MxrError
from mxr.request import genai_config
from mxr_cli.output import echo, note

from .fetch_options import with_defaults
from .programs import deliver_program, obtain_programs, plan_programs

if TYPE_CHECKING:
    from mxr.request.genai_config import GenaiProgram
    from mxr_cli.options import Session

    from .fetch_options import FetchOptions


def fetch_genai_models(session: Session, options: FetchOptions) -> dict[str, Any]:
    """Fetch every program that a configuration needs. Returns the JSON document.

    The programs of one model are a set: none is placed before all of them are in the cache. When a set is incomplete,
    those of the other models are placed all the same and their paths printed; then the first error is raised.
    """
    assert options.genai_config is not None
    session = replace(session, takes_open=False)
    documents: list[dict[str, Any]] = []
    errors: list[MxrError] = []
    for calls in _sets(session, options, Path(options.genai_config)).values():
        obtained = []
        for label, each in calls.items():
            try:
                plan = plan_programs(session, each)
                obtained += [(label, (plan[0], fetched)) for fetched in obtain_programs(session, each, plan)]
            except MxrError as error:
                error.message = f"{label}: {error.message}"
                error.context["part"] = label
                errors.append(error)
        if len(obtained) == len(calls):
            connect = session.connect(offline=options.offline)
            documents += [
                {"part": label} | deliver_program(session, *program, connect, options) for label, program in obtained
            ]
    if not errors:
        return {"config": options.genai_config, "entries": documents}
    if not session.as_json:
        for document in documents:
            echo(document["path"])
    for other in errors[1:]:
        note(f"mxr: {other.message}")
    raise errors[0]


def _sets(session: Session, options: FetchOptions, file: Path) -> dict[str, dict[str, FetchOptions]]:
    """The options of a fetch for each program: by the name of its model, then by its label."""
    config = genai_config.read_genai_config(file)
    for line in config.notes:
        note(f"mxr: {line}")
    found: dict[str, dict[str, FetchOptions]] = {}
    for part in config.parts:
        found.setdefault(part.name, {}).update(_calls(session, options, part))
    return found


def _calls(session: Session, options: FetchOptions, part: GenaiProgram) -> Iterator[tuple[str, FetchOptions]]:
    """A label and the options of a fetch for each batch size. Command line options override the configuration."""
    onnx, request = onnxfile.read_model(part.path), options.request
    wanted = replace(
        request,
        consumer=request.consumer or "ort",
        precision=request.precision or part.precision,
        tuning=request.tuning or part.tuning,
    )
    completed = with_defaults(session, replace(options, request=wanted, model=str(part.path)))
    # The phases of a model with fixed lengths are one program.
    phased = part.phase is not None and bool(part.inputs(onnx, None))
    given = (request.batch,) if request.batch else ()
    batches = completed.batches or given or part.batches or (completed.defaults.batch if phased else ()) or (None,)
    names = {item.name for item in onnx.inputs}
    for batch in batches:
        shapes = dict(part.inputs(onnx, batch)) | {name: shape for name, shape in request.inputs if name in names}
        label = (part.label if phased else part.name) + (f"-b{batch}" if len(batches) > 1 else "")
        # ONNX Runtime has one folder of programs for each session.
        folder = part.name if wanted.consumer == "ort" else label
        yield (
            label,
            replace(
                completed,
                request=replace(wanted, batch=batch, inputs=tuple(shapes.items())),
                batches=(),
                output=None if options.output is None else f"{options.output}/{folder}/",
            ),
        )
