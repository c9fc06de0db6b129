"""Compares a program file with its key: the fields that the file contradicts, and those that it does not show.

Missing evidence counts as unknown, never as a contradiction. The description is the document of `mxr inspect --json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mxr.errors import UsageError
from mxr.facts import FACTS, KEY, NAMES, PATH

from . import target
from .attributes import COUNTS, Attributes
from .key import Difference, Key, inputs_from_json
from .matching import READER
from .target import GfxArch, Inputs, pair_warnings

Description = Mapping[str, Any]


def contradictions(key: Key, attributes: Attributes, description: Description) -> tuple[Difference, ...]:
    """Return each field of the key or the attributes that the file contradicts, with both values."""
    found: list[Difference] = []
    if description.get("compiled") is False:
        found.append(Difference("compiled", True, False))
    found += _targets(key, description)
    found += _versions(key, attributes, description)
    found += _archs(key, attributes, description)
    # The inputs of a partition are values inside the model.
    if key.form == "whole":
        found += _inputs(key, description)
    found += _flags(key, description)
    return tuple(found)


def warnings(key: Key, description: Description) -> tuple[str, ...]:
    """Return a sentence for each field of the key that the file makes doubtful without contradicting it."""
    if key.kind != "gpu" or not description.get("rocm_hint"):
        return ()
    return pair_warnings(key.migraphx, key.rocm)


def sources(key: Key, attributes: Attributes, descriptions: Sequence[Description], speaker: str) -> Mapping[str, str]:
    """Return who states each fact: the reader, where every file shows it, otherwise `speaker`."""
    shown = [shows(key, attributes, description) for description in descriptions]
    return {name: READER if all(each[name] for each in shown) else speaker for name in shown[0]}


def shows(key: Key, attributes: Attributes, description: Description) -> dict[str, bool]:
    """Return for each fact that key and attributes state whether the file shows it."""
    version = description.get("migraphx")
    shown = {"kind": bool(description.get("targets")), "migraphx": bool(version)}
    shown["inputs"] = bool(description.get("inputs"))
    if key.kind == "gpu":
        # A code object that could not be read may be for another arch.
        unread = (description.get("kernels") or {}).get("unread")
        archs = () if unread else archs_of(description)
        shown |= {"vendor": description.get("flavour") == "hygon", "arch": bool(archs), "rocm": False}
        shown["offload_copy"] = description.get("offload_copy") is not None
        for name in target.FEATURES:
            if target.capable(key.arch or "", name):
                signs = {getattr(arch, name) or "any" for arch in archs}
                shown[name] = bool(archs) and strictest(signs) == getattr(attributes, name)
    else:
        shown["offload_copy"] = False
    shown |= {"model": False, "precision": False, "fast_math": False, "tuning": False}
    if attributes.migraphx_patch is not None:
        shown["migraphx_patch"] = version == attributes.migraphx_patch
    if attributes.libraries:
        shown["libraries"] = {*attributes.libraries} <= {*(description.get("libraries") or ())}
    for name in (*COUNTS, "rocm_patch", "build", "latency_ms", "real_arch"):
        if getattr(attributes, name) is not None:
            shown[name] = False
    # What only the compile knew: no file shows it.
    hidden = (fact.name for fact in FACTS if fact.place == KEY and fact.kind in (PATH, NAMES))
    return shown | {name: False for name in hidden if getattr(key, name)}


def archs_of(description: Description) -> tuple[GfxArch, ...]:
    """Return the archs of the code objects in the file, without those that this version of mxr does not know."""
    found = []
    for text in description.get("archs") or ():
        try:
            found.append(GfxArch.parse(text))
        except UsageError:
            continue
    return tuple(found)


def inputs_of(description: Description) -> Inputs:
    """Return the inputs with complete shapes, without those that have a symbol or an invalid size as a dim.

    Each dim of a program that can be reshaped is a range from 1 to the largest.
    """
    found: list[tuple[str, target.Shape]] = []
    for name, row in (description.get("inputs") or {}).items():
        try:
            found += inputs_from_json({name: _dims(row)}, "inputs")
        except UsageError:
            continue
    if not description.get("reshapes"):
        return tuple(found)
    return tuple((name, tuple(_up_to(dim) for dim in shape)) for name, shape in found)


def _up_to(dim: target.Dim) -> target.Dim:
    return target.DynamicDim(1, dim) if isinstance(dim, int) and dim > 1 else dim


def _dims(row: object) -> object:
    return row.get("dims") if isinstance(row, Mapping) else None


def _targets(key: Key, description: Description) -> list[Difference]:
    targets = list(description.get("targets") or ())
    return [Difference("kind", key.kind, "+".join(targets))] if targets and targets != [key.kind] else []


def _versions(key: Key, attributes: Attributes, description: Description) -> list[Difference]:
    found = []
    version = description.get("migraphx")
    if version and not (version + ".").startswith(key.migraphx + "."):
        found.append(Difference("migraphx", key.migraphx, version))
    elif version and version.count(".") >= 2 and not _same_patch(attributes.migraphx_patch, version):
        found.append(Difference("migraphx_patch", attributes.migraphx_patch, version))
    flavour = description.get("flavour")
    if key.kind == "gpu" and flavour and (flavour == "hygon") != (key.vendor == "hygon"):
        found.append(Difference("vendor", key.vendor, "hygon" if flavour == "hygon" else "amd"))
    return found


def _same_patch(stated_patch: str | None, version: str) -> bool:
    """Return whether MAJOR.MINOR.PATCH are equal: the file does not contain further parts of a version."""
    return stated_patch is None or _three_numbers(stated_patch) == _three_numbers(version)


def _three_numbers(version: str) -> list[str]:
    return re.findall(r"[0-9]+", version)[:3]


def _archs(key: Key, attributes: Attributes, description: Description) -> list[Difference]:
    archs = archs_of(description)
    texts = "+".join(map(str, archs))
    if not archs or key.kind != "gpu":
        return [Difference("arch", None, texts)] if archs else []
    if any(arch.base != key.arch for arch in archs):
        return [Difference("arch", key.arch, texts)]
    found = []
    for name in target.FEATURES:
        signs = {getattr(arch, name) or "any" for arch in archs}
        built_for = strictest(signs)
        if built_for not in ("any", getattr(attributes, name)):
            found.append(Difference(name, getattr(attributes, name), built_for or "+ and -"))
    return found


def strictest(signs: set[str]) -> str | None:
    """Return what several code objects require together: the explicit sign, `any`, or None for both `+` and `-`."""
    explicit = signs - {"any"}
    return None if len(explicit) > 1 else next(iter(explicit), "any")


def _inputs(key: Key, description: Description) -> list[Difference]:
    rows = description.get("inputs") or {}
    if not rows:
        return []
    asked = {name: [target.dim_to_json(dim) for dim in shape] for name, shape in key.inputs}
    found = {name: [target.dim_to_json(dim) for dim in shape] for name, shape in inputs_of(description)}
    foreign = [Difference(f"inputs.{name}", None, _dims(rows[name])) for name in sorted({*rows} - {*asked})]
    # MIGraphX drops unused inputs, so an input that only the key has is not a contradiction.
    both = sorted({*found} & {*asked})
    other = [Difference(f"inputs.{name}", asked[name], found[name]) for name in both if asked[name] != found[name]]
    if description.get("reshapes"):
        other = [each for each in other if not _same_largest(each.asked, each.found)]
    return foreign + [each for each in other if not is_scalar(each.asked, each.found)]


def _same_largest(asked: Any, found: Any) -> bool:
    """Return whether the dims in a key end where those of a program that can be reshaped end.

    Such a file does not show which dims vary, only how large each may be: a fixed dim is one of its largest.
    """
    ends = [[dim[1] if isinstance(dim, list) else dim for dim in dims] for dims in (asked, found)]
    return ends[0] == ends[1]


def is_scalar(asked: object, found: object) -> bool:
    """Return whether a scalar is requested and a single element found: MIGraphX stores scalars in this form.

    Source: MIGraphX, src/onnx/onnx_parser.cpp, parse_type.
    """
    return (asked, found) == ([], [1])


def _flags(key: Key, description: Description) -> list[Difference]:
    found = []
    offload = description.get("offload_copy")
    if key.kind == "gpu" and offload is not None and offload != key.offload_copy:
        found.append(Difference("offload_copy", key.offload_copy, offload))
    return found + _precision(key, description)


def _precision(key: Key, description: Description) -> list[Difference]:
    """Check that a requested precision left its types in a program with operators that it reduces.

    On a GPU, only fp16 always does: bf16 and fp8 fall back to float on archs without them, and int8 can be visible in
    the kernels only. Source: MIGraphX, src/targets/gpu/target.cpp, the passes that eliminate unsupported data types.
    """
    seen = description.get("precisions") or ()
    absent = absent_precisions(key.kind, key.precision, description)
    return [Difference("precision", "+".join(key.precision), "+".join(seen))] if absent else []


def absent_precisions(kind: str, words: tuple[str, ...], description: Description) -> list[str]:
    """Return those precisions in `words` whose types are missing, although they always show in such a program."""
    seen = description.get("precisions")
    is_sure = _is_sure_on_ref if kind == "ref" else _is_sure_on_gpu
    return [word for word in words if word not in seen and is_sure(word, description)] if seen else []


_REDUCED = {
    **dict.fromkeys(("fp16", "bf16", "int8"), ("dot", "convolution")),
    "fp8": ("convolution", "ref::softmax"),
}
"""Operators that each precision always changes.

Programs that only move data lose their conversions again, the `dot`s of a recurrent layer are created after fp8 is
applied, and int4w does not convert every weight. Source: the results of MIGraphX 2.16 for some hundred small graphs,
tests/core/program/test_real_migraphx.py.
"""


def _is_sure_on_ref(word: str, description: Description) -> bool:
    """A model in fp16 does not change when bf16 is requested: only fp32 and fp64 are reduced to 16 bits."""
    widths = {"half_type", "float_type", "double_type"} if word in ("int8", "fp8") else {"float_type", "double_type"}
    has_numbers = bool(widths & {*(description.get("types") or ())})
    return has_numbers and any(name in (description.get("operators") or ()) for name in _REDUCED.get(word, ()))


def _is_sure_on_gpu(word: str, description: Description) -> bool:
    """Only fp16 is, if the program multiplies matrices and has no 8-bit types, whose kernels can hide fp16."""
    if word != "fp16" or {"int8", "fp8"} & {*(description.get("precisions") or ())}:
        return False
    if (description.get("kernels") or {}).get("mlir"):
        return True
    return any(word in name for name in description.get("operators") or () for word in ("dot", "conv", "gemm"))
