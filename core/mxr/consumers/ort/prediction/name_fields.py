"""The parts of a file name that all generations share: the fields, the hash of the arch, the repeated file name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mxr.consumers.ort.hashes import FIELDS, Chain, hashed, joined

from .graph import Graph, Sizes


@dataclass(frozen=True, slots=True)
class Unpredictable:
    """The answer that no name can be predicted for this model: `reason` says why, `hint` what to do.

    It is a value and not an exception, because callers handle it as one of two normal results.
    """

    reason: str
    hint: str = (
        "Add --on-miss wait: a worker with that ONNX Runtime runs the model and records the files that the provider "
        "writes. Or run the model once yourself, then publish the files with `mxr import --ort-cache DIR`."
    )


class PredictionRefused(Exception):
    """Carries an `Unpredictable` up to the functions of `prediction`, which catch it; it never leaves this package."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.answer = Unpredictable(reason) if hint is None else Unpredictable(reason, hint)


MINIMUM_BYTES = 500
"""The file name of the model is repeated until the text has at least this many bytes."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a name depends on apart from the graph.

    `file_name` is the name of the ONNX file that will be opened, None for a session from bytes. `provider` is the
    MIGraphX version that the provider was built with. `arch` is HIP's full gcnArchName, such as
    `gfx942:sramecc+:xnack-`.
    """

    file_name: str | None
    provider: str
    arch: str
    system: str = "LINUX"


@dataclass(frozen=True, slots=True)
class PredictedName:
    """A predicted file name, each field in hex as in the name, and a text that says what was hashed for each field."""

    file: str
    fields: Mapping[str, str]
    meant: Mapping[str, str]


def name_of(deployment: Deployment, graph: int, shape: int, shapes: str) -> PredictedName:
    """Build a name from the four fields."""
    values = (version_field(deployment.provider), graph, hashed(deployment.arch.encode()), shape)
    meant = {
        "version": f"MIGraphX {deployment.provider}, which the provider was built with",
        "graph": f"the file name {deployment.file_name or '(a session from bytes)'}, and names and shapes in the graph",
        "arch": deployment.arch,
        "shape": shapes,
    }
    return PredictedName(joined(*values), dict(zip(FIELDS, (f"{value:x}" for value in values), strict=True)), meant)


def version_field(version: str) -> int:
    """The version field, `20f00` for 2.15.0: major, minor and patch in 16, 8 and 8 bits. Raises `PredictionRefused`."""
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:3]):
        raise PredictionRefused(
            f"the provider's MIGraphX version {version!r} is not MAJOR.MINOR.PATCH", "Add --ort-migraphx 2.15.0."
        )
    major, minor, patch = (int(part) for part in (*parts, "0")[:3])
    return major << 16 | minor << 8 | patch


def hash_file_name(chain: Chain, file_name: str | None) -> None:
    """Hash the repeated file name; a session from bytes has none."""
    if file_name:
        size = len(file_name.encode())
        chain.update(file_name * -(-MINIMUM_BYTES // size))


def known_dims(sizes: Sizes | None) -> tuple[int, ...] | None:
    """The dims if all are known, else None."""
    if sizes is None or any(size is None or size < 0 for size in sizes):
        return None
    return tuple(size for size in sizes if size is not None)


def inputs_text(graph: Graph, names: tuple[str, ...]) -> str:
    """Inputs with their dims, for people."""
    return " ".join(f"{name}={list(graph.shapes.get(name) or ())}" for name in names)
