"""An artifact as a row: the JSON object and the table cells that several commands print."""

from __future__ import annotations

from typing import Any

from mxr.artifact.target import GfxArch
from mxr.protocol.artifacts import Artifact, message_document

from .output import format_size, format_time, key_cells


def artifact_row(artifact: Artifact) -> dict[str, Any]:
    """The JSON object of an artifact in a list: without its manifest and description, which can be large."""
    row = message_document(artifact)
    del row["manifest"], row["description"]
    return row


def artifact_cells(artifact: Artifact) -> tuple[str, ...]:
    """The table cells of an artifact: id, target, toolchain, inputs, precision, origin, size, time of publication."""
    key, attributes = artifact.key, artifact.attributes
    target = str(GfxArch.of(key.arch, attributes)) if key.kind == "gpu" else key.kind
    return (
        artifact.id[:12] + ("*" if artifact.promoted_at else ""),
        f"{target}/{attributes.num_cu}" if attributes.num_cu else target,
        *key_cells(key)[1:],
        artifact.origin,
        format_size(artifact.size),
        format_time(artifact.published_at),
    )
