"""The `form` field in the key of a recorded set: which ONNX Runtime wrote the files, at which level, from which file.

ort:B:1.27.1:all:0f1e2d3c4b5a     generation, version, optimization level, and the hash of the model's file name or
                                  `bytes` for a session from bytes
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated

from mxr.artifact.key import Key
from mxr.artifact.manifest import check_name
from mxr.errors import UsageError
from mxr.facts import stated
from mxr.util.codec import refuse
from mxr.util.doc import Doc

from .requirements import WHO, check_key

if TYPE_CHECKING:
    from .contract import Contract

BY_WORKERS = ("B", "C")
"""The generations that workers record: those whose built-in provider writes a folder of hashed names."""

PRECISIONS = ((), ("fp16",), ("bf16",))
"""The precisions that provider options alone can select. For int8 and fp8 the provider reads calibration tables of its
own, and fp16 together with bf16 switches both off.
Source: microsoft/onnxruntime, onnxruntime/core/providers/migraphx/migraphx_execution_provider.cc."""

RUNTIME_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}")
"""A version of ONNX Runtime."""

_FORM = re.compile(r"ort:([A-D]1?):([^:]+):([^:]+):(bytes|[0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class OrtRuntime:
    """An ONNX Runtime with a working MIGraphX provider: the generation of its file names, and its version."""

    generation: Annotated[str, Doc("The generation of the file names of its MIGraphX provider.", enum=BY_WORKERS)]
    version: Annotated[str, Doc("The version of ONNX Runtime.", pattern=RUNTIME_VERSION, examples=["1.27.1"])]

    def __post_init__(self) -> None:
        if self.generation not in BY_WORKERS:
            raise refuse("ort.generation", " or ".join(BY_WORKERS), self.generation)
        if not RUNTIME_VERSION.fullmatch(self.version):
            raise refuse("ort.version", "a version such as 1.27.1", self.version)

    def __str__(self) -> str:
        """As in a form: `B:1.27.1`."""
        return f"{self.generation}:{self.version}"


def form_of(found: Contract, file_name: str | None, level: str) -> str:
    """The form of a set. `file_name` is the name under which the model is opened, None for a session from bytes."""
    generation = found.generation.replace("'", "1")
    return f"ort:{generation}:{found.version or 'any'}:{level}:{_opened(file_name)}"


def is_recording(key: Key) -> bool:
    """Whether a key is that of a recorded set."""
    return key.form.startswith("ort:")


def runtime_in(form: str) -> str:
    """The ONNX Runtime of a form, in the notation of `OrtRuntime`; empty for a program that is not a recorded set."""
    return ":".join(form.split(":")[1:3])


def level_in(form: str) -> str:
    """The optimization level of the session in a form."""
    return form.split(":")[3]


def check_recording(key: Key, file_name: str | None) -> None:
    """Check that a worker can record the set with this key from a model that it opens as `file_name`.

    Raises `UsageError` for what the provider cannot do without further files, and for a file name that does not match
    the form.
    """
    from .options import LEVELS

    check_key(key)
    parts = _FORM.fullmatch(key.form)
    if parts is None:
        raise refuse("key.form", "ort:GENERATION:VERSION:LEVEL:NAME", key.form)
    generation, version, level, opened = parts.groups()
    if level not in LEVELS:
        raise UsageError(f"There is no optimization level {level!r}.", hint=f"Use one of: {', '.join(LEVELS)}.")
    if generation not in BY_WORKERS or not RUNTIME_VERSION.fullmatch(version):
        raise UsageError(
            f"Workers record for a given version of {WHO} of generation {' or '.join(BY_WORKERS)}, but this request is "
            f"for {'any version' if version == 'any' else version} of generation {generation}.",
            hint=f"Give the version that will serve the model, {stated('ort', '1.27.1')}, or its provider's library.",
        )
    if key.precision not in PRECISIONS:
        raise UsageError(
            f"{WHO}'s provider cannot compile in {'+'.join(key.precision)} without calibration tables of its own.",
            hint="Run the model on a host that has the tables, and publish its files: mxr import --ort-cache FOLDER.",
        )
    if opened != _opened(file_name):
        raise refuse("file_name", f"the file name from which {key.form} was made", file_name)
    if file_name is not None and "/" in check_name(file_name):
        raise refuse("file_name", "the name of a file, without a folder", file_name)


def check_weights(file_name: str | None, files: int) -> None:
    """Raise `UsageError` for a session from bytes of a model with several files.

    The program that opens such a session can set the folder of its weights in several ways, and the file names of the
    provider depend on it. Source: observed with provider 1.27.1.
    """
    if file_name is None and files > 1:
        raise UsageError(
            "The file names depend on how a session from bytes finds weights in other files, which mxr does not know.",
            hint="Open the model from its file, or publish what your program wrote: mxr import --ort-cache FOLDER.",
        )


def _opened(file_name: str | None) -> str:
    return sha256(file_name.encode()).hexdigest()[:12] if file_name else "bytes"
