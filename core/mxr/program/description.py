"""What a reader can say of a program, and how sure it is of each fact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mxr.program.shapes import Shape


class Certainty(StrEnum):
    """How sure a fact is; unknown is a legal answer, and said as such."""

    CERTAIN = "certain"
    STRONG = "strong"
    HEURISTIC = "heuristic"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Basis:
    """What a fact rests on: how sure it is and, in a few words, where it comes from."""

    how: Certainty
    source: str


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the nodes of a program.

    `migraphx` is None before file version 6, which does not write it. `form` is `msgpack` or `json`.
    `offload_copy` is what Hygon's header declares, and None elsewhere. `gfx_names` are the archs that MIGraphX 2.11
    wrote into the contexts, or that a later one may write beside a target's name in `target_options`.
    """

    file_version: int
    migraphx: str | None
    flavour: str
    targets: tuple[str, ...]
    form: str = "msgpack"
    offload_copy: bool | None = None
    gfx_names: tuple[str, ...] = ()
    target_options: Mapping[str, object] = field(default_factory=dict)

    @property
    def compiled(self) -> bool:
        """Is the program compiled? An uncompiled one names no target."""
        return bool(self.targets)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes: of the whole file, of all weights in it, of all code objects in it."""

    file: int
    literals: int
    code_objects: int


@dataclass(frozen=True, slots=True)
class Kernels:
    """Code objects for the GPU: how many, how many of them by rocMLIR, how many only made at run time."""

    code_objects: int
    mlir: int
    made_at_run_time: int


@dataclass(frozen=True, slots=True)
class Description:
    """Everything that a program file tells of itself; what it does not tell is None or empty, and `sure` says so.

    `archs` are texts such as `gfx908:sramecc+:xnack-`, a feature being absent where any setting will do.
    `rocm_hint` is the ROCm release whose official MIGraphX this version is. `mixed_arch` means that no one device
    can run all of the code objects. `warnings` are signs of a damaged file, `notes` are remarks.
    """

    header: Header
    archs: tuple[str, ...]
    mixed_arch: bool
    inputs: Mapping[str, Shape]
    outputs: tuple[Shape, ...]
    precisions: tuple[str, ...]
    offload_copy: bool | None
    libraries: tuple[str, ...]
    sizes: Sizes
    kernels: Kernels
    operators: Mapping[str, int]
    types: Mapping[str, int]
    modules: int
    debug_symbols: bool
    rocm_hint: str | None
    sure: Mapping[str, Basis]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def compiled(self) -> bool:
        """Is the program compiled?"""
        return self.header.compiled

    @property
    def is_dynamic(self) -> bool:
        """Does an input have an open dimension?"""
        return any(shape.is_dynamic for shape in self.inputs.values())

    def to_json(self) -> dict[str, object]:
        """The document of `mxr inspect --json`."""
        header, kernels = self.header, self.kernels
        return {
            "file_version": header.file_version,
            "migraphx": header.migraphx,
            "rocm_hint": self.rocm_hint,
            "flavour": header.flavour,
            "form": header.form,
            "compiled": header.compiled,
            "targets": list(header.targets),
            "target_options": dict(header.target_options),
            "archs": list(self.archs),
            "mixed_arch": self.mixed_arch,
            "inputs": {name: shape.to_json() for name, shape in self.inputs.items()},
            "outputs": [shape.to_json() for shape in self.outputs],
            "dynamic": self.is_dynamic,
            "precisions": list(self.precisions),
            "offload_copy": self.offload_copy,
            "libraries": list(self.libraries),
            "kernels": {
                "code_objects": kernels.code_objects,
                "mlir": kernels.mlir,
                "made_at_run_time": kernels.made_at_run_time,
            },
            "operators": dict(self.operators),
            "types": dict(self.types),
            "modules": self.modules,
            "debug_symbols": self.debug_symbols,
            "sizes": {
                "file": self.sizes.file,
                "literals": self.sizes.literals,
                "code_objects": self.sizes.code_objects,
            },
            "sure": {name: {"how": str(ground.how), "from": ground.source} for name, ground in self.sure.items()},
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }
