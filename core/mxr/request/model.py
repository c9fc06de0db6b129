"""Finds the model of a command: an ONNX file, or the hash `xxh3:...` of a model in the cache or the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mxr import onnxfile
from mxr.artifact.key import check_model
from mxr.artifact.records import Model, ModelInput
from mxr.artifact.target import DynamicDim, Inputs, Shape
from mxr.cache.store import Cache
from mxr.errors import NoSuchModel
from mxr.onnxfile import OnnxInput, OnnxModel
from mxr.util import hashing
from mxr.util.frozen import dataclass

if TYPE_CHECKING:
    from mxr.artifact.manifest import Manifest
    from mxr.client.registry import Client
    from mxr.protocol import artifacts as artifact_protocol


@dataclass(frozen=True, slots=True)
class ModelReference:
    """A model: its hash, the declarations in its ONNX file and, if the file is on this host, its paths."""

    model: str
    onnx: OnnxModel
    path: Path | None = None
    external: tuple[tuple[str, Path], ...] = ()

    @property
    def stem(self) -> str:
        """The base name for programs of this model: the stem of the ONNX file, or the first digits of the hash."""
        return self.path.stem if self.path else self.model.removeprefix("xxh3:")[:16]

    def bind(self, batch: int | None, inputs: Inputs) -> Inputs:
        """Returns the shapes of all inputs without open dims. Raises `Usage`, listing the inputs."""
        given = {name: tuple(_plain(dim) for dim in shape) for name, shape in inputs}
        bound = onnxfile.bind_inputs(self.onnx, batch=batch, inputs=given)
        return tuple((name, _shape(dims)) for name, dims in bound.items())

    def statement(self) -> artifact_protocol.RegisterModel | None:
        """Returns the publisher's statement about the model, None without the file. Reads all files to hash them."""
        if self.path is None:
            return None
        found = hashing.hash_model(self.path, self.external, with_sha256=True)
        onnx, *external = found.files
        return self._stated(onnx.sha256 or "", {file.name: file.sha256 or "" for file in external})

    def registration(self, manifest: Manifest, onnx: str) -> artifact_protocol.RegisterModel:
        """Returns the registration of this model with its bytes. `onnx`: name of the ONNX file in the manifest."""
        shas = {file.name: file.sha256 for file in manifest.files}
        return replace(self._stated(shas.pop(onnx), shas), onnx=onnx, manifest=manifest)

    def _stated(self, onnx: str, external: Mapping[str, str]) -> artifact_protocol.RegisterModel:
        from mxr.protocol import artifacts as artifact_protocol

        return artifact_protocol.RegisterModel(
            model=self.model,
            sha256=artifact_protocol.model_identity(onnx, external),
            name=_name(self.path or Path()),
            inputs=tuple(ModelInput(each.name, each.elem_type, each.dims) for each in self.onnx.inputs),
        )


def find(text: str, cache: Cache, connect: Callable[[], Client] | None) -> ModelReference:
    """Returns the model for a path or a hash.

    Raises `Damaged` for a file that is not an ONNX model, and `NoSuchModel` for an unknown hash.
    """
    if text.startswith("xxh3:"):
        return _by_hash(check_model(text), cache, connect)
    path = Path(text)
    onnx = onnxfile.read_model(path)
    external = onnxfile.external_files(onnx)
    model = hashing.model_hash_memoised(path, external, cache.memo)
    inputs = tuple(ModelInput(each.name, each.elem_type, each.dims) for each in onnx.inputs)
    cache.remember_model(Model(model, "0" * 64, _name(path), inputs))
    return ModelReference(model, onnx, path, external)


def _by_hash(model: str, cache: Cache, connect: Callable[[], Client] | None) -> ModelReference:
    known = cache.model(model)
    if known is None:
        if connect is None:
            raise NoSuchModel(f"The model {model} is not in the cache.")
        known = connect().model(model)
        cache.remember_model(known)
    inputs = tuple(OnnxInput(each.name, each.type, each.dims) for each in known.inputs)
    onnx = OnnxModel(Path(model), 0, inputs, (), (), None, 0, "")
    return ModelReference(model, onnx)


def _name(path: Path) -> str:
    """Returns the name of the file, or a default if a manifest cannot contain that name."""
    from mxr.artifact.manifest import check_name
    from mxr.errors import Usage

    try:
        return check_name(path.name)
    except Usage:
        return "model.onnx"


def _plain(dim: int | DynamicDim) -> onnxfile.Dim:
    return dim if isinstance(dim, int) else (dim.least, dim.most, dim.optimals)


def _shape(dims: tuple[onnxfile.Dim, ...]) -> Shape:
    return tuple(dim if isinstance(dim, int) else DynamicDim(*dim) for dim in dims)


def shown_inputs(inputs: Mapping[str, Shape]) -> str:
    """Returns inputs in the form of the command line."""
    from mxr.artifact.target import show_dims

    return " ".join(f"{name}={show_dims(shape)}" for name, shape in inputs.items())
