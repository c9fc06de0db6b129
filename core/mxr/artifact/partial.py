"""A request that leaves facts of its key open, and the keys that it admits.

Open may be the toolchain, the dims of inputs, the flags of the consumer and, where a lock decides, the target. Model,
form, precision, calibration, env and options are never open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any

import mxr.facts as facts
from mxr.errors import UsageError
from mxr.util.codec import JsonForm, decode, encode_fields, fields, refuse, schema_of_form
from mxr.util.frozen import dataclass

from . import field_docs, limits
from .attributes import Constraints, Request
from .key import (
    CALIBRATION_DOC,
    COMMON_FORMS,
    FIXED,
    FORM_DOC,
    GPU_FIELDS,
    IN_ORDER,
    MODEL_DOC,
    OPEN,
    Difference,
    Key,
    fixed_digest,
    other_releases,
)
from .target import FAMILY_OF, Dim, Inputs, Shape, dim_from_json, dim_to_json, show_dims, show_precision
from .target import userland as userland_of

OpenShape = tuple[Dim | None, ...] | None
"""The dims of an input as far as they are known; None if not even their number is."""

OpenInputs = tuple[tuple[str, OpenShape], ...]

STAND_INS = {facts.VERSION: "0.0", facts.FLAG: True}
"""Values that fit any other, by the kind of an open fact."""

FACTS = tuple(name for name in OPEN if name != "inputs")
"""Facts of a key that can be open, apart from dims."""


@dataclass(frozen=True, slots=True)
class PartialRequest:
    """The facts of a request that are known; None is open. The other fields are those of `Key` and `Request`.

    In JSON, null is open. A dim of an input can be null, or all of its dims.
    """

    json_forms = COMMON_FORMS | {
        "inputs": JsonForm(
            Mapping[str, Any],
            lambda value, where: _inputs_from_json(value, where),
            lambda inputs: {name: _open_shape_to_json(shape) for name, shape in inputs},
        )
    }
    json_needed = ("kind",)
    __get_pydantic_core_schema__ = classmethod(schema_of_form)

    model: Annotated[str, MODEL_DOC]
    inputs: Annotated[OpenInputs, field_docs.OPEN_INPUTS]
    kind: Annotated[str | None, field_docs.KIND] = None
    vendor: Annotated[str | None, field_docs.VENDOR] = None
    arch: Annotated[str | None, field_docs.ARCH] = None
    migraphx: Annotated[str | None, field_docs.MIGRAPHX] = None
    rocm: Annotated[str | None, field_docs.ROCM] = None
    offload_copy: Annotated[bool | None, field_docs.OFFLOAD_COPY] = None
    fast_math: Annotated[bool | None, field_docs.FAST_MATH] = None
    form: Annotated[str, FORM_DOC] = "whole"
    precision: Annotated[tuple[str, ...], field_docs.PRECISION] = ()
    calibration: Annotated[str | None, CALIBRATION_DOC] = None
    env: Annotated[tuple[tuple[str, str], ...], field_docs.ENV] = ()
    options: Annotated[tuple[tuple[str, str], ...], field_docs.OPTIONS] = ()
    constraints: Annotated[Constraints, field_docs.CONSTRAINTS] = field(default_factory=Constraints)

    def __post_init__(self) -> None:
        put = object.__setattr__
        ordered = sorted(self.inputs, key=lambda pair: pair[0])
        put(self, "inputs", tuple((name, _canonical_shape(shape, name)) for name, shape in ordered))
        put(self, "env", tuple(sorted(self.env)))
        put(self, "options", tuple(sorted(self.options)))
        self._check()

    def _check(self) -> None:
        """Raise `UsageError` for what no key may have: open facts are replaced by values that fit any other."""
        inputs = tuple((name, tuple(1 if dim is None else dim for dim in shape or ())) for name, shape in self.inputs)
        stand_ins: dict[str, Any] = {name: STAND_INS.get(facts.BY_NAME[name].kind) for name in FACTS}
        stand_ins["kind"] = "gpu"
        known = {name: getattr(self, name) for name in FACTS if getattr(self, name) is not None}
        if known.get("kind", "gpu") == "gpu":
            stand_ins["arch"] = "gfx908"
        rest = {name: getattr(self, name) for name in FIXED}
        key = Key(inputs=inputs, **{**stand_ins, **known, **rest})
        constraints = self.constraints if self.arch is not None else replace(self.constraints, sramecc=None, xnack=None)
        Request(key, constraints)

    @classmethod
    def of(cls, request: Request) -> PartialRequest:
        """Return a request that leaves nothing open as one that could."""
        key = request.key
        known = {name: getattr(key, name) for name in (*FACTS, *FIXED)}
        return cls(inputs=key.inputs, constraints=request.constraints, **known)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> PartialRequest:
        """Return the request in the JSON form of a complete or a partial one. Raises `UsageError`."""
        if "key" in document:
            return cls.of(decode(Request, dict(document), lenient=True))
        return decode(cls, dict(document), lenient=True)

    @property
    def words(self) -> tuple[str, str, str, str]:
        """The request for people, like `key_words`: target, toolchain, inputs, precision; what is open has a `?`."""
        userland = "" if self.kind == "ref" else f" {userland_of(self.vendor).lower()} {self.rocm or '?'}"
        runtime = f" onnxruntime {self.form.split(':')[2]}" if self.form != "whole" else ""
        return (
            self.arch or self.kind or "?",
            f"migraphx {self.migraphx or '?'}{userland}{runtime}",
            " ".join(f"{name}={_show_open(shape)}" for name, shape in self.inputs),
            show_precision(self.precision),
        )

    @property
    def determined(self) -> Request:
        """The request with its key, if no fact is open. Raises `UsageError`."""
        if self.open_facts:
            raise UsageError(f"The request leaves open: {', '.join(self.open_facts)}.", hint="State all facts.")
        known: dict[str, Any] = {name: getattr(self, name) for name in (*FACTS, *FIXED)}
        inputs = tuple((name, tuple(dim for dim in shape or () if dim is not None)) for name, shape in self.inputs)
        return Request(Key(inputs=inputs, **known), self.constraints)

    @property
    def open_facts(self) -> tuple[str, ...]:
        """The names of the open facts, as in the differences of keys: `migraphx`, `rocm`, `inputs.x`."""
        found = [
            name for name in FACTS if getattr(self, name) is None and not (self.kind == "ref" and name in GPU_FIELDS)
        ]
        return (*found, *(f"inputs.{name}" for name, shape in self.inputs if shape is None or None in shape))

    @property
    def has_target(self) -> bool:
        """Whether it tells on what its programs run."""
        return self.kind == "ref" or (self.kind is not None and self.arch is not None)

    @property
    def fixed_digests(self) -> tuple[str, ...]:
        """The `Key.fixed_digest` of each key that the request can admit: for its arch, and for the generic family.

        Raises `UsageError` if the target is open.
        """
        if not self.has_target:
            raise UsageError("The request has no arch.", hint="Add the arch, for example gfx908; or the kind ref.")
        shared = {name: getattr(self, name) for name in FIXED}
        if self.kind == "ref":
            return (fixed_digest(shared, "ref", None, None),)
        vendor = self.vendor or "amd"
        archs = (self.arch, FAMILY_OF.get(self.arch or "") if vendor == "amd" else None)
        return tuple(fixed_digest(shared, "gpu", vendor, arch) for arch in archs if arch is not None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: that of a key, where null is open, and `constraints`."""
        return encode_fields(self, (*IN_ORDER[1:], "constraints"))

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases of ROCm that it admits; empty if it admits every one."""
        if self.rocm is None or self.kind == "ref":
            return ()
        others = other_releases(self.vendor or "amd", self.rocm) if self.constraints.other_rocm else ()
        return (self.rocm, *others)

    def admits(self, key: Key) -> bool:
        """Whether a key, or one that `Request.related` would have, has every fact that is known."""
        if any(getattr(self, name) != getattr(key, name) for name in FIXED):
            return False
        for name in FACTS:
            asked, found = getattr(self, name), getattr(key, name)
            if asked in (None, found) or (name == "arch" and found == FAMILY_OF.get(asked)):
                continue
            if name != "rocm" or found not in self.releases:
                return False
        return self._admits_inputs(key.inputs)

    def _admits_inputs(self, inputs: Inputs) -> bool:
        if [name for name, _ in self.inputs] != [name for name, _ in inputs]:
            return False
        return all(_fits(asked, found) for (_, asked), (_, found) in zip(self.inputs, inputs, strict=True))

    def differences(self, found: Key) -> tuple[Difference, ...]:
        """Return each known fact that a key does not have, like `Key.differences`. An open dim is null."""
        if self.admits(found):
            return ()
        has = found.to_json()
        asked: dict[str, Any] = {"model": self.model, "form": self.form}
        asked |= {name: getattr(self, name) for name in FACTS if getattr(self, name) is not None}
        asked |= {"precision": show_precision(self.precision), "calibration": self.calibration}
        rows = [(name, value, has.get(name)) for name, value in asked.items()]
        shapes, others = dict(self.inputs), dict(found.inputs)
        for name in dict.fromkeys((*shapes, *others)):
            if name not in shapes or name not in others or not _fits(shapes[name], others[name]):
                dims = _open_shape_to_json(shapes.get(name))
                asked_dims = ("any dims" if dims is None else dims) if name in shapes else None
                rows.append((f"inputs.{name}", asked_dims, has["inputs"].get(name)))
        for field_name in ("env", "options"):
            settings = dict(getattr(self, field_name))
            for name in dict.fromkeys((*settings, *has[field_name])):
                rows.append((f"{field_name}.{name}", settings.get(name), has[field_name].get(name)))
        return tuple(Difference(name, left, right) for name, left, right in rows if left != right)

    def completed(self, key: Key) -> Request:
        """Return the request for a key that this one admits: for its own arch and ROCm, where the key has others."""
        return Request(replace(key, arch=self.arch or key.arch, rocm=self.rocm or key.rocm), self.constraints)


def _canonical_shape(shape: OpenShape, name: str) -> OpenShape:
    if shape is None:
        return None
    return tuple(
        dim if dim is None else dim_from_json(dim_to_json(dim), f"inputs.{name}", place)
        for place, dim in enumerate(shape)
    )


def _show_open(shape: OpenShape) -> str:
    return "?" if shape is None else ",".join("?" if dim is None else show_dims((dim,)) for dim in shape)


def _fits(asked: OpenShape, found: Shape) -> bool:
    if asked is None:
        return True
    return len(asked) == len(found) and all(dim in (None, other) for dim, other in zip(asked, found, strict=True))


def _open_shape_to_json(shape: OpenShape) -> list[object] | None:
    return None if shape is None else [dim if dim is None else dim_to_json(dim) for dim in shape]


def _inputs_from_json(document: object, where: str) -> OpenInputs:
    rows = fields(document, where)
    limits.check_count(rows, limits.MAX_INPUTS, where, "inputs")
    found: list[tuple[str, OpenShape]] = []
    for name, dims in rows:
        if dims is not None and not isinstance(dims, list):
            raise refuse(f"{where}.{name}", "a list of dims, or null", dims)
        shape: OpenShape = None
        if dims is not None:
            at = f"{where}.{name}"
            shape = tuple(dim if dim is None else dim_from_json(dim, at, place) for place, dim in enumerate(dims))
        found.append((name, shape))
    limits.check_inputs([(name, shape or ()) for name, shape in found], where)
    return tuple(found)
