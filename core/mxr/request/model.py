"""Finds the model of a command: an ONNX file, or the identity `sha256:...` of a model in the cache or the registry."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mxr import onnxfile
from mxr.artifact.key import MODEL, MODEL_PREFIX, MODEL_SHORT
from mxr.artifact.model_files import model_identity
from mxr.artifact.partial import OpenInputs, OpenShape
from mxr.artifact.records import Model, ModelClaim, ModelInput
from mxr.artifact.target import DynamicDim, Inputs, Shape
from mxr.cache.store import Cache
from mxr.errors import NoSuchModelError, UsageError
from mxr.onnxfile import OnnxInput, OnnxModel
from mxr.util.frozen import dataclass
from mxr.util.hashing import StatMemo

if TYPE_CHECKING:
    from mxr.artifact.manifest import Manifest
    from mxr.client.registry import Client
    from mxr.protocol import artifacts as artifact_protocol


@dataclass(frozen=True, slots=True)
class ModelReference:
    """A model: its identity, the declarations in its ONNX file and, if the file is on this host, its paths."""

    identity: str
    onnx: OnnxModel
    path: Path | None = None
    external: tuple[tuple[str, Path], ...] = ()

    @classmethod
    def of_identity(cls, model: str, inputs: Iterable[OnnxInput] = ()) -> ModelReference:
        """Return a model that is known by its identity and what somebody says of its inputs."""
        return cls(model, OnnxModel(Path(model), 0, tuple(inputs), (), (), None, 0, ""))

    @property
    def name(self) -> str:
        """What this host calls the model: the name of its file; empty where it is known by its identity only."""
        return self.path.name if self.path else ""

    @property
    def stem(self) -> str:
        """The base name for programs of this model: the stem of the ONNX file, or the first digits of the hash."""
        return self.path.stem if self.path else self.identity.removeprefix(MODEL_PREFIX)[:16]

    def bind_known(self, batch: int | None, inputs: Inputs) -> OpenInputs:
        """Return the shapes of all inputs as far as they are known.

        Raises `UsageError` for what contradicts the model.
        """
        given = {name: tuple(_plain(dim) for dim in shape) for name, shape in inputs}
        bound = onnxfile.bind_known_dims(self.onnx, batch=batch, inputs=given)
        return tuple((name, None if dims is None else _open_shape(dims)) for name, dims in bound.items())

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the model on this host: the ONNX file and its external data; empty if it is known by hash."""
        return () if self.path is None else (self.path, *(path for _, path in self.external))

    def bind(self, batch: int | None, inputs: Inputs) -> Inputs:
        """Return the shapes of all inputs without open dims. Raises `UsageError`, listing the inputs."""
        given = {name: tuple(_plain(dim) for dim in shape) for name, shape in inputs}
        bound = onnxfile.bind_inputs(self.onnx, batch=batch, inputs=given)
        return tuple((name, _shape(dims)) for name, dims in bound.items())

    def differing_symbols(self, inputs: Inputs) -> tuple[str, ...]:
        """Return the symbols of the model to which these shapes give several sizes."""
        given = {name: tuple(_plain(dim) for dim in shape) for name, shape in inputs}
        return tuple(onnxfile.differing_symbols(self.onnx, given))

    def claim(self) -> ModelClaim | None:
        """Return what a publisher says about the model, None without the file."""
        return None if self.path is None else ModelClaim(_name(self.path), self._inputs())

    def registration(self, manifest: Manifest, onnx: str) -> artifact_protocol.RegisterModel:
        """Return the registration of this model with its bytes. `onnx`: name of the ONNX file in the manifest."""
        from mxr.protocol import artifacts as artifact_protocol

        name = _name(self.path or Path())
        return artifact_protocol.RegisterModel(name, onnx, manifest, self._inputs(), self.identity)

    def _inputs(self) -> tuple[ModelInput, ...]:
        return tuple(ModelInput(item.name, item.elem_type, item.dims) for item in self.onnx.inputs)


def find_model(
    text: str, cache: Cache, connect: Callable[[], Client] | None, *, follow_links: bool = False
) -> ModelReference:
    """Return the model for a path or a hash.

    Raises `DamagedError` for a file that is not an ONNX model, and `NoSuchModelError` for an unknown hash.
    """
    if is_identity(text):
        return _by_identity(complete_identity(text, cache, connect), cache, connect)
    path = Path(text)
    onnx, external, model = _read(path, cache.memo, follow_links=follow_links)
    inputs = tuple(ModelInput(item.name, item.elem_type, item.dims) for item in onnx.inputs)
    cache.store_model(Model(model, _name(path), inputs))
    return ModelReference(model, onnx, path, external)


def file_identity(path: Path, memo: StatMemo) -> str:
    """Return the identity of the model in an ONNX file. Raises `DamagedError` and `UsageError`."""
    # Who only compares hands no bytes on: a link out of the folder is followed.
    return _read(path, memo, follow_links=True)[2]


def identifier(memo: StatMemo) -> Callable[[Path], str]:
    """Return `file_identity` for one command: it reads each file once, also where the memo remembers nothing."""
    return functools.cache(functools.partial(file_identity, memo=memo))


def _read(path: Path, memo: StatMemo, *, follow_links: bool) -> tuple[OnnxModel, tuple[tuple[str, Path], ...], str]:
    onnx = onnxfile.read_model(path)
    external = onnxfile.external_files(onnx, follow_links=follow_links)
    return onnx, external, model_identity(path, external, memo)


def with_name(message: str, model: str | None) -> str:
    """Return a message with the model by its name and the first digits of its identity, where people read it."""
    name = f"{Path(model).name} ({{}})" if model and not is_identity(model) else "{}"
    return re.sub("sha256:[0-9a-f]{64}", lambda found: name.format(found[0][:19]), message)


def is_identity(text: str) -> bool:
    """Return whether a command line names a model by its identity, and not by a path."""
    return text.startswith(MODEL_PREFIX)


def split_tag(text: str) -> tuple[str, str] | None:
    """Return model and tag of `MODEL:TAG`; None for a file, for an identity, and for what names no tag."""
    model, _, tag = text.rpartition(":")
    if model in ("", "sha256", "xxh3") or Path(text).exists():
        return None
    from mxr.protocol.tags import TAG_NAME

    return (model, tag) if TAG_NAME.fullmatch(tag) else None


def complete_identity(text: str, cache: Cache, connect: Callable[[], Client] | None) -> str:
    """Return the identity that begins with `text`: "sha256:" and at least 12 digits.

    All 64 digits are returned as they are. For fewer, the models in the cache and in the registry are compared. Raises
    `UsageError` for fewer than 12 digits and for a prefix of several identities, `NoSuchModelError` for a prefix of
    none.
    """
    if MODEL.fullmatch(text):
        return text
    if not MODEL_SHORT.fullmatch(text):
        raise UsageError(
            f"{text[:100]!r} does not identify a model.",
            hint="Give sha256: and 12 to 64 lower-case hex digits, as `mxr identity MODEL.onnx` prints them.",
        )
    found = set(cache.model_identities(text))
    if connect is not None:
        found |= set(connect().model_identities(text))
    if not found:
        raise NoSuchModelError(f"No known model begins with {text}.")
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} models begin with {text}.",
            hint="Give more digits: " + ", ".join(sorted(found)[:5]) + ".",
            context={"models": sorted(found)},
        )
    return found.pop()


def _by_identity(model: str, cache: Cache, connect: Callable[[], Client] | None) -> ModelReference:
    known = cache.model(model)
    if known is None:
        if connect is None:
            raise NoSuchModelError(f"The model {model} is not in the cache.")
        client = connect()
        known = client.model(model)
        cache.note_reply(client)
        if not known.claimed:
            cache.store_model(known, from_registry=True)
    return ModelReference.of_identity(model, (OnnxInput(item.name, item.type, item.dims) for item in known.inputs))


def _name(path: Path) -> str:
    """Return the name of the file, or a default if a manifest cannot contain that name."""
    from mxr.artifact.manifest import check_name
    from mxr.errors import UsageError

    try:
        return check_name(path.name)
    except UsageError:
        return "model.onnx"


def _plain(dim: int | DynamicDim) -> onnxfile.Dim:
    return dim if isinstance(dim, int) else (dim.least, dim.most, dim.optimals)


def _shape(dims: tuple[onnxfile.Dim, ...]) -> Shape:
    return tuple(dim if isinstance(dim, int) else DynamicDim(*dim) for dim in dims)


def _open_shape(dims: tuple[onnxfile.Dim | None, ...]) -> OpenShape:
    return tuple(dim if dim is None or isinstance(dim, int) else DynamicDim(*dim) for dim in dims)
