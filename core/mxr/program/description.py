"""Data types that describe a program, with the certainty of each fact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from mxr.program.shapes import Shape


class Certainty(str, Enum):
    """How certain a fact is, from most to least. `unknown` is a valid answer."""

    CERTAIN = "certain"
    STRONG = "strong"
    HEURISTIC = "heuristic"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Basis:
    """The basis of a fact: how certain it is and, in a few words, where it comes from."""

    how: Certainty
    source: str


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a program: everything before its nodes.

    `migraphx` is the MIGraphX version; None before file version 6, which does not store it. `form` is `msgpack` or
    `json`. `offload_copy` is the value in Hygon's header, and None for upstream MIGraphX. `gfx_names` are the archs
    that MIGraphX 2.11 wrote into the contexts, or that a later release may write next to the name of a target, in
    `target_options`.
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
        """Whether the program is compiled. An uncompiled program names no target."""
        return bool(self.targets)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes in bytes: of the file, of all weights in it, and of all code objects in it."""

    file: int
    literals: int
    code_objects: int


@dataclass(frozen=True, slots=True)
class Kernels:
    """Numbers of GPU kernels: code objects in the file, those by rocMLIR, those compiled at run time, those unread.

    `unread` code objects may be for any arch: the archs of the others are no complete evidence.
    """

    code_objects: int
    mlir: int
    made_at_run_time: int
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Description:
    """All facts that a program file contains. A fact that the file does not contain is None or empty.

    `archs` are texts such as `gfx908:sramecc+:xnack-`; a feature is absent if the code runs with any setting of it.
    `rocm_hint` is the ROCm release that officially ships this MIGraphX version. `mixed_arch` is true if no single
    device can run all code objects. `sure` gives the basis of each fact, by its name. `warnings` are signs of a damaged
    file; `notes` are remarks. `reshapes`: the program takes smaller inputs as well, and `inputs` are the largest ones
    (Hygon's dynamic programs).
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
    reshapes: bool = False

    @property
    def migraphx(self) -> str | None:
        """The version of MIGraphX that wrote the file, if it says one."""
        return self.header.migraphx

    @property
    def compiled(self) -> bool:
        """Whether the program is compiled."""
        return self.header.compiled

    @property
    def is_dynamic(self) -> bool:
        """Whether an input can have several sizes."""
        return self.reshapes or any(shape.is_dynamic for shape in self.inputs.values())

    def to_json(self) -> dict[str, object]:
        """Return the document that `mxr inspect --json` prints."""
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
            "reshapes": self.reshapes,
            "precisions": list(self.precisions),
            "offload_copy": self.offload_copy,
            "libraries": list(self.libraries),
            "kernels": {
                "code_objects": kernels.code_objects,
                "mlir": kernels.mlir,
                "made_at_run_time": kernels.made_at_run_time,
                "unread": kernels.unread,
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
