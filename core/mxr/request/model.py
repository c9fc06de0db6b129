"""The model that a command is about: an ONNX file, or `xxh3:...` of one that the cache or the registry knows."""

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
    """A model: its hash, what its ONNX file declares, and, where the file is here, its path and external files."""

    model: str
    onnx: OnnxModel
    path: Path | None = None
    external: tuple[tuple[str, Path], ...] = ()

    @property
    def stem(self) -> str:
        """What a program of this model is called in a folder: the file's stem, or the beginning of the hash."""
        return self.path.stem if self.path else self.model.removeprefix("xxh3:")[:16]

    def bind(self, batch: int | None, inputs: Inputs) -> Inputs:
        """Every input with all dims closed. Raises `Usage`, showing the inputs."""
        given = {name: tuple(_plain(dim) for dim in shape) for name, shape in inputs}
        bound = onnxfile.bind_inputs(self.onnx, batch=batch, inputs=given)
        return tuple((name, _shape(dims)) for name, dims in bound.items())

    def statement(self) -> artifact_protocol.RegisterModel | None:
        """What a publisher states of the model: reads the file whole once for its sha256; None without the file."""
        if self.path is None:
            return None
        found = hashing.hash_model(self.path, self.external, with_sha256=True)
        onnx, *external = found.files
        return self._stated(onnx.sha256 or "", {file.name: file.sha256 or "" for file in external})

    def registration(self, manifest: Manifest, onnx: str) -> artifact_protocol.RegisterModel:
        """What makes the registry keep this model for compiling: the ONNX file is called `onnx` in its manifest."""
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
    """The model that `text` names. Raises `Damaged` for a file that is no ONNX model, `NoSuchModel` for a hash."""
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
            raise NoSuchModel(f"The cache does not know the model {model}.")
        known = connect().model(model)
        cache.remember_model(known)
    inputs = tuple(OnnxInput(each.name, each.type, each.dims) for each in known.inputs)
    onnx = OnnxModel(Path(model), 0, inputs, (), (), None, 0, "")
    return ModelReference(model, onnx)


def _name(path: Path) -> str:
    """The file's name for people; one that could not stand in a manifest is replaced."""
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
    """Inputs as one writes them on the command line."""
    from mxr.artifact.target import show_dims

    return " ".join(f"{name}={show_dims(shape)}" for name, shape in inputs.items())
