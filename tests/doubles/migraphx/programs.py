"""Models and program files of the MIGraphX double: reads ONNX, writes MIGraphX's file versions 6 to 8."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

HERE = Path(__file__).resolve()
TESTS = HERE.parents[2]

_SPEC = importlib.util.spec_from_file_location("program_maker", TESTS / "core/program/program_maker.py")
# Known by their names, as the folders of loaded modules and of the path are those that a walled child may read.
sys.path.append(str(TESTS / "data/hsaco"))
maker = sys.modules["program_maker"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(maker)

NUMPY = {"float": "float32", "half": "float16", "double": "float64", "bool": "bool"}
NUMPY |= {f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
KINDS = {1: "float", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool"}
KINDS |= {10: "half", 11: "double", 12: "uint32", 13: "uint64"}
"""Source: onnx/onnx, onnx/onnx.proto, TensorProto.DataType."""
_MARK = b"the double's own: "


def read(filename: str, dims: dict[str, list], *, quick: bool = False) -> dict:
    """Read a model with its inputs fixed to `dims`. Returns a dict that is JSON except for the bytes in `onnx`.

    `quick`: without importing the whole onnx package, which takes longer than everything else here.
    """
    if quick:
        from . import quick as onnx
    else:
        import onnx

    try:
        model = onnx.load(filename)
    except FileNotFoundError as error:
        where = "/src/src/onnx/onnx_parser.cpp:512: parse_tensor: PARSE_TENSOR: External data file not found: "
        raise RuntimeError(where + str(error)) from error
    except Exception as error:
        raise RuntimeError(f"/src/src/onnx/onnx.cpp:92: PARSE_FROM: Failed reading onnx file: {filename}") from error
    unknown = [node.op_type for node in model.graph.node if node.domain == "test.unknown"]
    if unknown:
        raise RuntimeError(f"/src/src/onnx/onnx_parser.cpp:398: parse_graph: Unknown operator: {unknown[0]}")
    named = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: _form(value, dims) for value in model.graph.input if value.name not in named}
    marks = {entry.key: entry.value for entry in model.metadata_props}
    infer = onnx.infer if quick else onnx.shape_inference.infer_shapes
    outputs = _outputs(model, inputs, infer)
    held = model.SerializeToString()
    return {"onnx": held, "inputs": inputs, "outputs": outputs, "words": [], "marks": marks}


def _outputs(model, inputs: dict, infer) -> list:
    """The outputs of the model with fixed inputs; a range has its minimum."""
    closed = type(model)()
    closed.CopyFrom(model)
    for value in closed.graph.input:
        for dim, asked in zip(value.type.tensor_type.shape.dim, inputs.get(value.name, ("", []))[1], strict=False):
            dim.dim_value = asked if isinstance(asked, int) else asked[0]
    for value in closed.graph.output:
        value.type.tensor_type.ClearField("shape")
    return [_form(value, {}) for value in infer(closed).graph.output]


def _form(value, dims: dict[str, list]) -> tuple[str, list]:
    tensor = value.type.tensor_type
    return KINDS[tensor.elem_type], list(dims.get(value.name, [dim.dim_value or 1 for dim in tensor.shape.dim]))


def evaluate(model: bytes, params: dict) -> list[np.ndarray]:
    """Compute the outputs with ONNX's reference evaluator."""
    import numpy as np
    import onnx
    from onnx.reference import ReferenceEvaluator

    held = onnx.load(io.BytesIO(model))
    scalars = {value.name for value in held.graph.input if not value.type.tensor_type.shape.dim}
    values = {name: np.asarray(array) for name, array in params.items()}
    values |= {name: values[name].reshape(()) for name in scalars & set(values)}
    return [np.asarray(array) for array in ReferenceEvaluator(held).run(None, values)]


def _shape(kind: str, dims: list, version: int) -> dict:
    if all(isinstance(dim, int) for dim in dims):
        return maker.shape(kind, *(dims or [1]), dyn_strides=version >= 8)
    rows = [(dim, dim, []) if isinstance(dim, int) else dim for dim in dims]
    if version >= 8:
        dynamic = [{"range": {"min": low, "max": high}, "optimals": best, "sym": None} for low, high, best in rows]
    else:
        dynamic = [{"min": low, "max": high, "optimals": best} for low, high, best in rows]
    return maker.shape(kind, dyn_strides=version >= 8) | {"lens": [], "strides": [], "dynamic_dimensions": dynamic}


def write(source: dict, flags: dict, settings: dict) -> bytes:
    """The bytes of a program file."""
    # Hygon's files are of version 7, with binaries as in version 6.
    version = 6 if settings.get("hygon") else settings["file_version"]
    nodes = []
    for name, (kind, dims) in source["inputs"].items():
        form = _shape(kind, dims, version)
        nodes.append(maker.param(name, form))
        if flags.get("kind") == "gpu" and flags["offload_copy"]:
            nodes.append(maker.node(f"@c{len(nodes)}", "hip::copy_to_gpu", form, [name]))
    made = _work(source["words"], flags, version)
    forms = [_shape(kind, dims, version) for kind, dims in source["outputs"]]
    if flags.get("kind") == "gpu" and not flags["offload_copy"]:
        nodes += [maker.param(f"main:#output_{at}", form) for at, form in enumerate(forms)]
    name, last = "ref::op" if flags.get("kind") == "ref" else "reshape", made[-1]["output"]
    ends = [maker.node(f"@o{at}", name, form, [last]) for at, form in enumerate(forms)]
    first = forms[0] if forms else _shape("float", [1], version)
    nodes += [*made, *ends, maker.node("@r", "@return", first, [end["output"] for end in ends])]
    kept = {name: each for name, each in source.items() if name != "onnx"}
    note = _MARK + json.dumps({"source": kept, "flags": flags}).encode() + b"\0" + source["onnx"]
    if settings.get("hygon"):
        return _of_hygon(nodes, source, flags, settings) + maker.pack(note)
    program = maker.program(nodes, version=version, migraphx=settings["migraphx"], target=flags.get("kind"))
    # After the program, where neither MIGraphX's loader nor any reader looks.
    return program + maker.pack(_held(note, version))


def _of_hygon(nodes: list, source: dict, flags: dict, settings: dict) -> bytes:
    """A file of Hygon's MIGraphX. Source: qianqing13579/MIGraphX_Dynamic, src/program.cpp, program::to_value."""
    top = maker.fields(nodes, version=7, migraphx=settings["migraphx"], target="gpu")
    del top["targets"], top["contexts"]
    inputs = source["inputs"]
    top["modules"]["main"] |= {
        "dynamic": os.environ.get("MIGRAPHX_DYNAMIC_SHAPE") == "1",
        "input_names": [*inputs],
        "input_shapes": [_shape(kind, dims, 6) for kind, dims in inputs.values()],
    }
    return maker.pack({"target": "gpu", "offload_copy": flags["offload_copy"], "context": {}} | top)


def _held(data: bytes, version: int) -> bytes:
    return maker.Chunks([data]) if version >= 7 else data


def _work(words: list[str], flags: dict, version: int) -> list:
    kinds = {"fp16": "half", "bf16": "bf16", "int8": "int8", "fp8": "fp8e4m3fn"}
    nodes = [maker.literal("@w", _shape("float", [4], version), _held(bytes(16), version))]
    for word in words:
        name = "quantizelinear" if word == "int8" else "convert"
        nodes.append(maker.node(f"@{word}", name, _shape(kinds[word], [4], version), ["@w"]))
    if flags.get("kind") == "gpu":
        code = _code(flags["arch"])
        form = _shape(kinds[words[0]] if words and words[0] in ("fp16", "bf16") else "float", [4], version)
        nodes.append(maker.code_object("@k", form, _held(code, version), ["@w"]))
    return nodes


_MACH = {"gfx906": 0x2F, "gfx908": 0x30, "gfx90a": 0x3F, "gfx942": 0x4C, "gfx1030": 0x36, "gfx1100": 0x41}
_SIGNS = {None: 1, "-": 2, "+": 3}


def _code(arch: str) -> bytes:
    """A code object for an arch: a compiled one from the test data where there is one, else a bare ELF header."""
    path = TESTS / "data/hsaco" / f"{arch.replace(':', '_')}.cov5.hsaco"
    if path.is_file():
        return path.read_bytes()
    base, *features = arch.split(":")
    signs = {feature[:-1]: feature[-1] for feature in features}
    flags = _MACH[base]
    if base in ("gfx906", "gfx908", "gfx90a", "gfx942"):
        flags |= _SIGNS[signs.get("xnack")] << 8 | _SIGNS[signs.get("sramecc")] << 10
    return maker.elf(flags)


def load(filename: str) -> tuple[dict, dict]:
    """The source and flags of a file that `write` returned. Error texts are MIGraphX's."""
    data = Path(filename).read_bytes()
    at = data.rfind(_MARK)
    if at < 0:
        raise RuntimeError("insufficient bytes")
    note, _, model = data[at + len(_MARK) :].partition(b"\0")
    held = json.loads(note)
    return held["source"] | {"onnx": model}, held["flags"]
