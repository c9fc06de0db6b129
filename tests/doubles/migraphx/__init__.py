"""A double of MIGraphX's Python module: the same functions and error texts, readable program files, faults on request.

It is found through PYTHONPATH, like the real module. It reads its settings from `migraphx_double.json` in any folder of
PYTHONPATH: {"arch", "migraphx", "file_version", "version_text", "quick", "cross", "modes",
"library", "old", "hygon"}. Faults are set in the model's
metadata: "double.parse", "double.compile", "double.save", "double.load" and "double.run" each hold the name of a
function of `faults`, a colon, and its text. Programs run in ONNX's reference evaluator, because the file contains the
model after the program, where readers do not look; with "quick" they return zeros.
"""

from __future__ import annotations

import json
import math
import mmap
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from . import faults, programs

# numpy is imported where it is used: it takes most of the time of a child that only compiles.
if TYPE_CHECKING:
    import numpy as np


def _settings() -> dict:
    for folder in sys.path:
        path = Path(folder, "migraphx_double.json")
        if path.is_file():
            return json.loads(path.read_text())
    return {}


SETTINGS = {"arch": "gfx90a:sramecc+:xnack-", "migraphx": "2.15.0", "file_version": 7, **_settings()}
__version__ = SETTINGS.get("version_text", SETTINGS["migraphx"] + ".dev+double")


class shape:
    """A type and dims. A dynamic dim is a `dynamic_dimension`."""

    class dynamic_dimension:
        """A range from `min` to `max`."""

        def __init__(self, least: int, most: int, optimals: set[int] | None = None) -> None:
            self.min, self.max, self.optimals = least, most, optimals or set()

    def __init__(self, type: str = "float", lens: list | None = None) -> None:
        self._type, self._dims = type, list(lens if lens is not None else [1])

    def type_string(self) -> str:
        return f"{self._type}_type"

    def dynamic(self) -> bool:
        return any(not isinstance(dim, int) for dim in self._dims)

    def lens(self) -> list[int]:
        if self.dynamic():
            raise RuntimeError("/src/src/shape.cpp:422: lens: SHAPE: lens() called on a dynamic shape")
        # MIGraphX describes a scalar as one element.
        return self._dims or [1]

    def strides(self) -> list[int]:
        return programs.maker.strides_of(self._dims) or [0]

    def dyn_dims(self) -> list:
        return [shape.dynamic_dimension(dim, dim) if isinstance(dim, int) else dim for dim in self._dims]


class argument:
    """Values with a shape."""

    def __init__(self, array: np.ndarray) -> None:
        import numpy as np

        self._array = np.asarray(array)

    def get_shape(self) -> shape:
        kinds = {name: kind for kind, name in programs.NUMPY.items()}
        return shape(kinds[str(self._array.dtype)], list(self._array.shape))

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        import numpy as np

        return np.array(self._array, dtype=dtype)

    def tolist(self) -> list:
        return self._array.ravel().tolist()


class target:
    """A target, and the GPU architecture it compiles for."""

    def __init__(self, name: str, arch: str) -> None:
        self.name, self.arch = name, arch


class op:
    """An operation."""

    def __init__(self, name: str) -> None:
        self.name = name


class program:
    """A model before or after it is quantized and compiled."""

    def __init__(self, source: dict | None = None) -> None:
        self.source = source or {"onnx": b"", "inputs": {}, "outputs": [], "words": [], "marks": {}}
        self.flags: dict = {}

    def get_main_module(self) -> program:
        return self

    def add_parameter(self, name: str, form: shape) -> str:
        return name

    def add_instruction(self, operation: op, names: list) -> str:
        return names[0]

    def add_return(self, names: list) -> None:
        self.source["sum"] = True

    def compile(
        self,
        t: target,
        offload_copy: bool = True,
        fast_math: bool = True,
        exhaustive_tune: bool = False,
        compile_mode: object = None,
    ):
        """compile(self: migraphx.program, t: migraphx.target, offload_copy: bool = True, fast_math: bool = True,
        exhaustive_tune: bool = False) -> None"""
        faults.say(f"compile {offload_copy=} {fast_math=} {exhaustive_tune=} {compile_mode=}")
        faults.apply(self.source["marks"].get("double.compile"))
        self.flags = {"kind": t.name, "arch": t.arch, "offload_copy": offload_copy}

    def is_compiled(self) -> bool:
        return bool(self.flags)

    def get_parameter_shapes(self) -> dict[str, shape]:
        return {name: shape(kind, _ranged(dims)) for name, (kind, dims) in self.source["inputs"].items()}

    def get_output_shapes(self) -> list[shape]:
        return [shape(kind, _ranged(dims)) for kind, dims in self.source["outputs"]]

    def run(self, params: dict) -> list[argument]:
        import numpy as np

        for name, form in {} if self.source.get("sum") else self.get_parameter_shapes().items():
            if not form.dynamic() and np.asarray(params[name]).shape != tuple(form._dims):
                raise RuntimeError(f"/src/src/program.cpp:506: operator(): Incorrect shape for parameter: {name}")
        faults.apply(self.source["marks"].get("double.run"))
        if self.source.get("sum"):
            return [argument(params["x"] * 2)]
        if SETTINGS.get("quick"):
            from . import quick

            quick.parse(self.source["onnx"])
            return [argument(array) for array in quick.zeros(self.source["outputs"], programs.NUMPY)]
        return [argument(array) for array in programs.evaluate(self.source["onnx"], params)]


def _ranged(dims: list) -> list:
    return [dim if isinstance(dim, int) else shape.dynamic_dimension(dim[0], dim[1], set(dim[2])) for dim in dims]


def parse_onnx(filename: str, map_input_dims: dict | None = None, map_dyn_input_dims: dict | None = None) -> program:
    """parse_onnx(filename: str, default_dim_value: int = 0, map_input_dims: Dict = {}, map_dyn_input_dims: Dict = {},
    limit_max_iterations: int = 65535) -> migraphx.program"""
    if map_input_dims and map_dyn_input_dims:
        raise RuntimeError("/src/src/onnx/onnx.cpp:69: parse_onnx_from: both map_input_dims and map_dyn_input_dims")
    ranges = {
        name: [dim.min if dim.min == dim.max else [dim.min, dim.max, sorted(dim.optimals)] for dim in dims]
        for name, dims in (map_dyn_input_dims or {}).items()
    }
    source = programs.read(filename, {**(map_input_dims or {}), **ranges}, quick=bool(SETTINGS.get("quick")))
    faults.apply(source["marks"].get("double.parse"))
    return program(source)


def quantize_fp16(prog: program) -> None:
    prog.source["words"].append("fp16")


def quantize_bf16(prog: program) -> None:
    prog.source["words"].append("bf16")


def quantize_int8(prog: program, t: target, calibration: list | None = None) -> None:
    for sample in calibration or []:
        assert set(sample) == set(prog.source["inputs"]), "the sample has other inputs than the model"
    prog.source["words"].append("int8")


def get_target(name: str, **kwargs) -> target:
    """get_target(arg0: str) -> migraphx.target"""
    if kwargs and not SETTINGS.get("cross"):
        raise TypeError("get_target(): incompatible function arguments.")
    if name not in ("gpu", "ref"):
        raise RuntimeError(
            f"/src/src/dynamic_loader.cpp:63: check_load_error: Dynamic loading or symbol lookup failed with "
            f"libmigraphx_{name}.so: cannot open shared object file: No such file or directory"
        )
    return target(name, kwargs.get("gpu_arch", SETTINGS["arch"]) if name == "gpu" else "")


def save(p: program, filename: str, format: str = "msgpack") -> None:
    """save(p: migraphx.program, filename: str, format: str = 'msgpack') -> None"""
    mark = p.source["marks"].get("double.save", "")
    flags = dict(p.flags)
    if mark.startswith("arch:"):
        flags["arch"] = mark.removeprefix("arch:")
    data = programs.write(p.source, flags, SETTINGS)
    Path(filename).write_bytes(data[: len(data) // 2] if mark == "truncate" else data)


def load(filename: str, format: str = "msgpack") -> program:
    """load(filename: str, format: str = 'msgpack') -> migraphx.program"""
    found = program()
    found.source, found.flags = programs.load(filename)
    faults.apply(found.source["marks"].get("double.load"))
    return found


def to_gpu(arg: argument) -> argument:
    return arg


def from_gpu(arg: argument) -> argument:
    return arg


def gpu_sync() -> None:
    """The double has no GPU to wait for."""


if SETTINGS.get("cross"):
    get_target.__doc__ = "get_target(name: str, **kwargs) -> migraphx.target"
if SETTINGS.get("library"):
    # A mapped file, as the real module maps libmigraphx_gpu.so: its bytes tell which options MIGraphX reads.
    with Path(SETTINGS["library"]).open("rb") as _file:
        LIBRARY = mmap.mmap(_file.fileno(), 0, access=mmap.ACCESS_READ)
if SETTINGS.get("modes"):

    class compile_modes(Enum):
        """How much a compile optimizes."""

        eager, balanced, max = 0, 50, 100

    program.compile.__doc__ = program.compile.__doc__.replace(" = False) ->", " = False, compile_mode = 50) ->")
if SETTINGS.get("hygon"):
    # Source: qianqing13579/MIGraphX_Dynamic, src/py/migraphx_py.cpp.
    parse_onnx.__doc__ = "parse_onnx(filename: str, default_dim_value: int = 1, map_input_dims: Dict = {}) -> program"

    def _reshape(self: program, inputs: dict) -> None:
        """reshape(self: migraphx.program, inputs: Dict = {}, printInfo: bool = True) -> None"""
        for name, dims in inputs.items():
            kind, most = self.source["inputs"][name]
            if math.prod(dims) > math.prod(most):
                raise RuntimeError(f"input shape {dims} exceed the max input shape {most}")
            self.source["inputs"][name] = (kind, list(dims))

    program.reshape = _reshape  # type: ignore[attr-defined]
if SETTINGS.get("old"):
    parse_onnx.__doc__ = "parse_onnx(filename: str, default_dim_value: int = 1, map_input_dims: Dict = {}) -> program"
    program.compile.__doc__ = "compile(self: program, t: target, offload_copy: bool = True, fast_math: bool = True)"
    del quantize_bf16
