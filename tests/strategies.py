"""Generated values for the property tests: keys, attributes, constraints, candidates, and what a file may say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from mxr.artifact.attributes import Attributes, Constraints, RelatedKey
from mxr.artifact.key import Key
from mxr.artifact.matching import Candidate
from mxr.artifact.target import DynamicDim

MODEL = "sha256:" + "0123456789abcdef" * 4
OTHER_MODEL = "sha256:" + "f" * 64
SHA = "ab" * 32

GPU = Key(model=MODEL, kind="gpu", arch="gfx90a", rocm="7.2", migraphx="2.15", inputs=(("x", (8, 3, 224, 224)),))
"""A plain key to vary."""

sizes = st.integers(1, 2**31 - 1)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
short_versions = st.builds("{}.{}".format, st.integers(0, 30), st.integers(0, 30))


@st.composite
def dims(draw: st.DrawFn) -> int | DynamicDim:
    """A size, or a range with optimals inside it, in any order and with repeats."""
    if draw(st.booleans()):
        return draw(sizes)
    least = draw(st.integers(1, 1000))
    most = draw(st.integers(least, 2000))
    return DynamicDim(least, most, tuple(draw(st.lists(st.integers(least, most), max_size=4))))


@st.composite
def key_parts(draw: st.DrawFn) -> dict[str, Any]:
    """The arguments of a key for a GPU or the reference target."""
    words = draw(st.lists(st.sampled_from(["fp16", "bf16", "int8", "fp8", "int4w"]), unique=True, max_size=3))
    calibrated = {"int8", "fp8"} & set(words) and draw(st.booleans())
    shapes = st.lists(dims(), max_size=4).map(tuple)
    values = st.integers(0, 10**9 - 1).map(str)
    variables = st.sampled_from(["MIGRAPHX_MLIR_TUNE_LIMIT", "MIGRAPHX_NSTREAMS", "MIGRAPHX_SPLIT_REDUCE_SIZE"])
    return {
        "model": "sha256:" + f"{draw(st.integers(0, 2**256 - 1)):064x}",
        "kind": draw(st.sampled_from(["gpu", "gpu", "ref"])),
        "vendor": draw(st.sampled_from(["amd", "hygon"])),
        "arch": draw(st.sampled_from(["gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx11-generic"])),
        "rocm": draw(short_versions),
        "migraphx": draw(short_versions),
        "form": draw(st.sampled_from(["whole", "ort:1.23:part_0"])),
        "inputs": tuple(draw(st.dictionaries(names, shapes, max_size=4)).items()),
        "precision": tuple(words),
        "calibration": SHA if calibrated else None,
        "offload_copy": draw(st.booleans()),
        "fast_math": draw(st.booleans()),
        "env": tuple(draw(st.dictionaries(variables, values, max_size=3)).items()),
        "options": tuple(draw(st.dictionaries(st.just("split_sizes"), values, max_size=2)).items()),
    }


keys = key_parts().map(lambda parts: Key(**parts))
counts = st.sampled_from([None, 60, 104, 110, 120])
chiplets = st.sampled_from([None, 1, 2])
rocm_patches = st.sampled_from([None, "7.2.0", "7.2.1"])
migraphx_patches = st.sampled_from([None, "2.15.0", "2.15.1"])
real_archs = st.sampled_from([None, None, None, "gfx1103", "gfx1151"])
builds = st.sampled_from([None, "1a2b3c4", "5d6e7f8"])


@st.composite
def constraints(draw: st.DrawFn) -> Constraints:
    """Any constraints that do not contradict themselves."""
    exact = draw(st.booleans())
    allow = draw(st.lists(st.sampled_from(["cu", "patch", "rocm", "cross", "spoof"]), unique=True)) if not exact else []
    tunings = [None, None, "default", "exhaustive", *(["cross"] if "cross" in allow else [])]
    return Constraints(
        sramecc=draw(st.sampled_from(["+", "-", None])),
        xnack=draw(st.sampled_from(["+", "-", None])),
        num_cu=draw(counts),
        chiplets=draw(chiplets),
        rocm_patch=draw(rocm_patches),
        migraphx_patch=draw(migraphx_patches),
        build=draw(builds),
        tuning=draw(st.sampled_from(tunings)),
        exact=exact,
        allow=tuple(allow),
        real_arch=draw(real_archs),
    )


attributes = st.builds(
    Attributes,
    sramecc=st.sampled_from(["+", "-", "any", "any"]),
    xnack=st.sampled_from(["+", "-", "any", "any"]),
    num_cu=counts,
    chiplets=chiplets,
    rocm_patch=rocm_patches,
    migraphx_patch=migraphx_patches,
    build=builds,
    tuning=st.sampled_from(["default", "exhaustive", "cross"]),
    libraries=st.sampled_from([(), (), ("miopen",), ("rocblas", "hipblaslt")]),
    real_arch=real_archs,
)


ASKED = Key("sha256:" + "0" * 64, "gpu", "2.18", (("x", (1,)),), arch="gfx942", rocm="10.1")


def related_to(**changes: str) -> RelatedKey:
    """A key that differs from `ASKED` in what a rule can accept."""
    return RelatedKey(ASKED, replace(ASKED, **changes))


related = st.sampled_from(
    [
        *[None] * 6,
        related_to(),
        related_to(arch="gfx9-4-generic"),
        related_to(rocm="10.0"),
        related_to(rocm="10.3"),
        related_to(arch="gfx9-4-generic", rocm="10.2"),
    ]
)
"""How the key of a program differs from the one that is asked for: mostly not at all."""

FACTS = ("sramecc", "xnack", "num_cu", "chiplets", "rocm_patch", "migraphx_patch", "build", "tuning", "real_arch")


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    """Up to six artifacts of one digest or of its family's, the order of publication mixed up."""
    found = draw(st.lists(attributes, max_size=6))
    orders = draw(st.permutations(range(len(found))))
    return [
        Candidate(
            id=f"{order:064x}",
            attributes=each,
            promoted=draw(st.sampled_from([0, 0, 0, order + 1])),
            order=order,
            related=draw(related),
            origin=draw(st.sampled_from(["built", "pushed"])),
            found=frozenset(draw(st.sets(st.sampled_from(FACTS)))),
        )
        for each, order in zip(found, orders, strict=True)
    ]


def agreeing(demanded: Constraints, found: list[Candidate]) -> list[Candidate]:
    """The same candidates with one sign per feature, so that an open request is no usage error."""
    rows = []
    for each in found:
        has = each.attributes
        signs = {
            name: "+" if getattr(has, name) == "-" and getattr(demanded, name) is None else getattr(has, name)
            for name in ("sramecc", "xnack")
        }
        rows.append(replace(each, attributes=replace(has, **signs)))
    return rows


@st.composite
def descriptions(draw: st.DrawFn) -> dict[str, Any]:
    """What a file may say of itself, true of `GPU` or not; any fact may be missing or empty."""
    archs = ["gfx90a", "gfx90a:sramecc+", "gfx90a:sramecc-:xnack+", "gfx908:xnack-", "gfx1100", "gfx9-odd"]
    rows = st.fixed_dictionaries(
        {"type": st.just("float_type")},
        optional={"dims": st.sampled_from([None, [8, 3, 224, 224], [8], [0], [1, None]])},
    )
    return draw(
        st.fixed_dictionaries(
            {},
            optional={
                "compiled": st.sampled_from([True, True, False, None]),
                "targets": st.sampled_from([[], ["gpu"], ["ref"], ["gpu", "ref"]]),
                "migraphx": st.sampled_from([None, "2.15.0", "2.15.1", "2.1.5", "2.16.0", "2.15"]),
                "flavour": st.sampled_from([None, "upstream", "hygon"]),
                "archs": st.lists(st.sampled_from(archs), max_size=3),
                "inputs": st.dictionaries(st.sampled_from(["x", "y"]), rows, max_size=2),
                "offload_copy": st.sampled_from([None, True, False]),
                "precisions": st.lists(st.sampled_from(["fp32", "fp16", "int8"]), unique=True, max_size=2),
                "libraries": st.lists(st.sampled_from(["miopen", "rocblas"]), unique=True),
            },
        )
    )
