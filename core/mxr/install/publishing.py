"""Publish one program file: what is known of it, its label, the model beside it, the publication."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxr.program import describe_file
from mxr.protocol.artifacts import Artifact, PublicationIntent
from mxr.request.builder import RequestOptions
from mxr.request.model import find_model
from mxr.util.frozen import dataclass
from mxr.workflows.push import label_program, push

from .model_beside import refuse_recorded_for_another

if TYPE_CHECKING:
    from mxr.cache.store import Cache
    from mxr.client.registry import Client


@dataclass(frozen=True, slots=True)
class Published:
    """What was published. `warnings`: doubts about its label. `notes`: what was taken to be so."""

    artifact: Artifact
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def publish_file(
    file: Path,
    model: str,
    options: RequestOptions,
    cache: Cache,
    connect: Callable[[], Client],
    intent: PublicationIntent,
    *,
    folder: Path | None = None,
    tool: str = "mxr push",
) -> Published:
    """Publish a program of a model, given by its ONNX file or its identity. `folder`: where mxr keeps its record.

    Raises what `label_program` and `push` raise, and `MismatchError` for a program that mxr placed for another model.
    """
    description = describe_file(file).to_json()
    known = find_model(model, cache, connect, follow_links=options.follow_links)
    if not intent.also_for:
        refuse_recorded_for_another(folder or file.parent, file, known, cache.memo)
    label = label_program(options, known, description)
    provenance: dict[str, Any] = {"tool": tool} | ({"warnings": list(label.warnings)} if label.warnings else {})
    doubts: list[str] = []
    artifact = push(file, known, label, connect(), provenance, intent, doubts.append)
    found = [*label.warnings, *doubts, *(artifact.description or {}).get("warnings", ())]
    return Published(artifact, tuple(dict.fromkeys(found)), label.notes)
