"""The form of a recorded set's key: which ONNX Runtime wrote its files, at which level, from a file of which name.

ort:B:1.27.1:all:0f1e2d3c4b5a     generation, version, the session's level, the model's file name, hashed; or bytes
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from mxr.artifact.key import Key
from mxr.artifact.manifest import check_name
from mxr.errors import Usage
from mxr.util.codec import refuse

from . import WHO, fit

if TYPE_CHECKING:
    from .contract import Contract

BY_WORKERS = ("B", "C")
"""The generations whose sets a worker records: those with a folder of hashed names, which a built-in provider fills."""

PRECISIONS = ((), ("fp16",), ("bf16",))
"""What the provider can be told by its options alone. For int8 and fp8 it reads calibration tables of its own, and fp16
beside bf16 switches both off.
Source: microsoft/onnxruntime, onnxruntime/core/providers/migraphx/migraphx_execution_provider.cc."""

_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}")
_FORM = re.compile(r"ort:([A-D]1?):([^:]+):([^:]+):(bytes|[0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class OrtRuntime:
    """An ONNX Runtime whose MIGraphX provider works: the generation of its file names, and its version."""

    generation: str
    version: str

    def __post_init__(self) -> None:
        if self.generation not in BY_WORKERS:
            raise refuse("ort.generation", " or ".join(BY_WORKERS), self.generation)
        if not _VERSION.fullmatch(self.version):
            raise refuse("ort.version", "a version such as 1.27.1", self.version)

    def __str__(self) -> str:
        """As it stands in a form: `B:1.27.1`."""
        return f"{self.generation}:{self.version}"


def form_of(found: Contract, file_name: str | None, level: str) -> str:
    """The form of a set's key. `file_name` is the model's where it is opened, None for a session from bytes."""
    generation = found.generation.replace("'", "1")
    return f"ort:{generation}:{found.version or 'any'}:{level}:{_opened(file_name)}"


def is_recording(key: Key) -> bool:
    """Whether a key is that of a recorded set."""
    return key.form.startswith("ort:")


def runtime_in(form: str) -> str:
    """Which ONNX Runtime a form asks for, as `Runtime` spells it; empty for a whole model, which asks for none."""
    return ":".join(form.split(":")[1:3])


def level_in(form: str) -> str:
    """The session's level in a form."""
    return form.split(":")[3]


def check_recording(key: Key, file_name: str | None) -> None:
    """Returns when a worker can record the set of this key from a model that it opens as `file_name`.

    Raises `Usage` for what the provider cannot do by itself, and for a file name that the form was not made of.
    """
    from .optimiser import LEVELS

    fit(key)
    parts = _FORM.fullmatch(key.form)
    if parts is None:
        raise refuse("key.form", "ort:GENERATION:VERSION:LEVEL:NAME", key.form)
    generation, version, level, opened = parts.groups()
    if level not in LEVELS:
        raise Usage(f"There is no optimisation level {level!r}.", hint=f"Levels are {', '.join(LEVELS)}.")
    if generation not in BY_WORKERS or not _VERSION.fullmatch(version):
        raise Usage(
            f"Workers record the files of one version of {WHO} of generation {' or '.join(BY_WORKERS)}, and this asks "
            f"for {'any' if version == 'any' else version} of generation {generation}.",
            hint="Say which one will serve: --ort 1.27.1, or --ort PATH of its provider's library.",
        )
    if key.precision not in PRECISIONS:
        raise Usage(
            f"{WHO}'s provider compiles in {'+'.join(key.precision)} by calibration tables of its own, or not at all.",
            hint="Run the model on a host with them, and publish what it wrote: mxr import --ort-cache FOLDER.",
        )
    if opened != _opened(file_name):
        raise refuse("file_name", f"the file name that {key.form} was made of", file_name)
    if file_name is not None and "/" in check_name(file_name):
        raise refuse("file_name", "the name of a file, without a folder", file_name)


def check_weights(file_name: str | None, files: int) -> None:
    """Raises `Usage` for a session from bytes of a model with several files.

    What such a session is told about the folder of its weights changes the names of its provider's files, and may be
    told in several ways. Source: the provider 1.27.1 itself.
    """
    if file_name is None and files > 1:
        raise Usage(
            "The names depend on how a session from bytes finds weights in other files, which is not known here.",
            hint="Open the model from its file, or record what your program leaves: mxr import --ort-cache FOLDER.",
        )


def _opened(file_name: str | None) -> str:
    return sha256(file_name.encode()).hexdigest()[:12] if file_name else "bytes"
