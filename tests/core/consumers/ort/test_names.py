"""The parts of names: hashes, orders and generations, checked with test vectors from other projects."""

from __future__ import annotations

import importlib.machinery
from pathlib import Path

import pytest
from harness.rows import for_each

from mxr.consumers.ort import contract
from mxr.consumers.ort.hashes import Chain, hashed, joined
from mxr.consumers.ort.prediction import naming
from mxr.consumers.ort.prediction.graph import Graph, GraphNode
from mxr.consumers.ort.prediction.name_fields import Deployment, PredictionRefused, version_field
from mxr.errors import UsageError

# Checked against the mmh3 package, and where marked in the issues of the projects named there.
HASHES = [
    (b"", 0, 0),
    (b"", 1, 0x54D201B988C4ADEC),
    (b"hello", 0, 0xDB91DEF72B2444A0),
    (b"LINUX", 0, 0x3569B1FC5C18E2BF),
    (b"LINUX", 0xDEADBEEF, 0x9A351934C9F0EEB1),
    (b"gfx906:sramecc+:xnack-", 0, 0x2D583E7B0DBACEB),
    (b"gfx908:sramecc+:xnack-", 0, 0x762B5E8C6BBC62BB),
    (b"gfx90a:sramecc+:xnack-", 0, 0x6F25DD2283A05F8C),
    (b"gfx942", 0, 0xC95186CB5096E7B1),
    (b"gfx942:sramecc+:xnack-", 0, 0x8E96240BD18E6F87),
    (b"gfx1100", 0, 0x9880CF1608079E0D),
    (b"gfx1150", 0, 0x560872BF9988F016),  # microsoft/winml-cli, issue 1300
    (b"gfx1201", 0, 0xBFDA5B8C4AA930D4),
]


@for_each(HASHES)
def test_hashes(data: bytes, seed: int, value: int) -> None:
    assert hashed(data, seed) == value


def test_a_chain_hashes_each_piece_with_what_came_before() -> None:
    chain = Chain()
    chain.update("hello")
    chain.update("LINUX")
    assert chain.value == hashed(b"LINUX", hashed(b"hello") & 0xFFFFFFFF)


def test_a_name_pads_nothing() -> None:
    assert joined(0x20F00, 0xABC, 0, 1) == "20f00-abc-0-1.mxr"


@pytest.mark.parametrize(("version", "field"), [("2.12.0", 0x20C00), ("2.15.0", 0x20F00), ("2.16", 0x21000)])
def test_version_fields(version: str, field: int) -> None:
    assert version_field(version) == field


@pytest.mark.parametrize("version", ["", "2", "two.0", "2.15-dev"])
def test_invalid_versions(version: str) -> None:
    with pytest.raises(PredictionRefused, match="MAJOR"):
        version_field(version)


def graph(inputs: dict[str, tuple[int | None, ...]]) -> Graph:
    """A convolution and a relu, or a chain of sums over several inputs."""
    if list(inputs) == ["x"]:
        nodes = (GraphNode("Conv", "", "", ("x", "W"), ("c",)), GraphNode("Relu", "", "", ("c",), ("y",)))
        shapes = {**inputs, "W": (4, 3, 3, 3), "c": (1, 4, 224, 224)}
        return Graph(nodes, ("x",), ("y",), frozenset({"W"}), shapes, {})
    names = list(inputs)
    rows = [GraphNode("Add", "", "", (names[0], names[1]), ("s0",))]
    rows += [GraphNode("Add", "", "", (f"s{at}", name), (f"s{at + 1}",)) for at, name in enumerate(names[2:])]
    return Graph(tuple(rows), tuple(names), (rows[-1].outputs[0],), frozenset(), inputs, {})


def deployed(file_name: str | None = "conv_static.onnx") -> Deployment:
    return Deployment(file_name, "2.15.0", "gfx942:sramecc+:xnack-")


@pytest.mark.parametrize(
    ("file_name", "field"),
    [("conv_static.onnx", "12d9ae3ea9d3827f"), ("model.onnx", "862c49ed49abe10a"), (None, "50bf408f773fe23e")],
)
def test_generation_b_as_the_provider_ran(file_name: str | None, field: str) -> None:
    name = naming.name_1_23(graph({"x": (1, 3, 224, 224)}), deployed(file_name))
    assert name.file == f"20f00-{field}-8e96240bd18e6f87-36a8840bfe2de0d1.mxr"
    assert name.fields == {"version": "20f00", "graph": field, "arch": "8e96240bd18e6f87", "shape": "36a8840bfe2de0d1"}


@pytest.mark.parametrize(
    ("dims", "field"),
    [((1, 3, 224, 224), "36a8840bfe2de0d1"), ((8, 3, 224, 224), "36a8840bfe2de0d1")],
)
def test_the_shape_field_has_no_batch(dims: tuple[int, ...], field: str) -> None:
    assert naming.name_1_23(graph({"x": dims}), deployed()).fields["shape"] == field


@pytest.mark.parametrize(("dims", "word"), [((None, 3), "open dims"), ((), "scalar")])
def test_open_dims(dims: tuple[int | None, ...], word: str) -> None:
    with pytest.raises(PredictionRefused, match=word):
        naming.name_1_23(graph({"x": dims}), deployed())


@pytest.mark.parametrize(
    ("said", "generation"),
    [("1.19.2", "A"), ("1.24.1", "B"), ("1.27.1", "B"), ("b", "B"), ("B'", "B'"), ("C", "C"), ("d", "D")],
)
def test_the_generation_of_an_option(said: str, generation: str) -> None:
    assert contract.choose_contract(said, "2.15.0").generation == generation


@pytest.mark.parametrize("said", ["1.22.1", "1.23.2", "1.99", "no/such/library.so"])
def test_options_without_a_generation(said: str) -> None:
    with pytest.raises(UsageError) as caught:
        contract.choose_contract(said)
    assert "--ort" in caught.value.hint


@pytest.mark.parametrize(
    ("strings", "generation"),
    [
        (b"migraphx_load_compiled_model", "A"),
        (b"migraphx_model_cache_dir", "B"),
        (b"migraphx_model_cache_dir migraphx_compile_batches", "C"),
        (b"ORT_MIGRAPHX_DISABLE_COMPILED_MODEL_CACHING migraphx_model_cache_dir", "D"),
    ],
)
def test_the_generation_of_a_library(tmp_path: Path, strings: bytes, generation: str) -> None:
    library = tmp_path / contract.LIBRARY
    library.write_bytes(b"\0" + strings + b"\0/opt/rocm-7.1.1/lib\0")
    found = contract.choose_contract(str(library))
    assert (found.generation, found.provider) == (generation, "2.14.0")


PLUGIN = b"\0ORT_MIGRAPHX_DISABLE_COMPILED_MODEL_CACHING\0"
BUILT_IN = b"\0migraphx_model_cache_dir\0"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"onnxruntime_ep_migraphx/libmigraphx-ep.so": PLUGIN, "onnxruntime/capi/libonnxruntime.so.1.29.0": b""}, "D"),
        ({"onnxruntime_ep_amdgpu/libmigraphx-backend.so": PLUGIN, "onnxruntime_ep_amdgpu/libother.so": b""}, "D"),
        (
            {
                "onnxruntime_ep_migraphx/libmigraphx-ep.so": PLUGIN,
                "onnxruntime/capi/libonnxruntime_providers_migraphx.so": BUILT_IN,
            },
            "B",
        ),
        ({"onnxruntime/capi/libonnxruntime.so.1.29.0": b""}, None),
    ],
)
def test_the_provider_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], found: str | None
) -> None:
    """The plugin is a package of its own beside a plain onnxruntime. Source: onnxruntime/onnxruntime-ep-amdgpu,
    src/migraphx/pyproject.toml: package data `*.so` of onnxruntime_ep_migraphx.
    """
    for name, data in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name.split("/")[0] / "__init__.py").write_text("raise SystemExit('imported')")
        path.write_bytes(data)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr("sys.meta_path", [importlib.machinery.PathFinder])
    if found is None:
        with pytest.raises(UsageError, match="No ONNX Runtime with a MIGraphX provider"):
            contract.installed()
        return
    chosen = contract.installed()
    assert chosen.generation == found
    assert chosen.version == ("1.29.0" if "onnxruntime/capi/libonnxruntime.so.1.29.0" in files else None)


def test_a_library_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "other.so").write_bytes(b"\x7fELF")
    with pytest.raises(UsageError, match="not the library of a MIGraphX provider"):
        contract.of_library(tmp_path / "other.so")
