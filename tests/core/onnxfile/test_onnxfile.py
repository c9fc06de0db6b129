"""The ONNX reader compared with the onnx package: inputs, external data, foreign files, shapes of a key."""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from harness.onnx_files import read, saved
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st
from onnx import external_data_helper, helper

from mxr.errors import DamagedError, UsageError
from mxr.onnxfile import (
    MAX_SUBGRAPH_DEPTH,
    OnnxInput,
    OnnxModel,
    bind_inputs,
    differing_symbols,
    external_files,
    read_model,
)

FLOAT = onnx.TensorProto.FLOAT


def graph(name: str = "g", **fields: Any) -> onnx.GraphProto:
    ends = [helper.make_tensor_value_info(end, FLOAT, ["N", 3]) for end in ("x", "y")]
    node = helper.make_node("Relu", ["x"], ["y"])
    made = onnx.GraphProto(name=name, node=[node], input=ends[:1], output=ends[1:])
    made.MergeFrom(onnx.GraphProto(**fields))
    return made


def tensor(name: str, location: str | None = None) -> onnx.TensorProto:
    made = onnx.TensorProto(name=name, data_type=FLOAT, dims=[1])
    if location is None:
        made.raw_data = b"\0\0\x80\x3f"
    else:
        made.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", "0"), ("length", "4")):
            made.external_data.add(key=key, value=value)
    return made


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the many models that hypothesis generates."""
    return tmp_path_factory.mktemp("models")


# --- facts of the file ---


def test_reads_the_facts_of_a_file(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("com.other", 3), helper.make_opsetid("", 17)]
    model = helper.make_model(graph(), opset_imports=opsets, ir_version=8, producer_name="a maker")
    found = read(tmp_path, model)
    assert (found.opset, found.ir_version, found.producer) == (17, 8, "a maker")
    assert found.size == len(model.SerializeToString())
    assert found.inputs == (OnnxInput("x", "float32", ("N", 3)),)
    assert found.outputs == (OnnxInput("y", "float32", ("N", 3)),)
    assert found.external == ()


def test_initializers_and_sparse_initializers_are_not_inputs(tmp_path: Path) -> None:
    made = graph(initializer=[tensor("w")], sparse_initializer=[onnx.SparseTensorProto(values=tensor("s"))])
    for name in ("w", "s", "z"):
        made.input.append(helper.make_tensor_value_info(name, FLOAT, []))
    found = read(tmp_path, helper.make_model(made))
    assert [item.name for item in found.inputs] == ["x", "z"]
    assert found.inputs[1].dims == ()


def test_unknown_dims_and_unknown_ranks(tmp_path: Path) -> None:
    made = graph()
    made.input.append(helper.make_tensor_value_info("open", FLOAT, [None, -1, 0, "", 2**40]))
    made.input.append(helper.make_tensor_value_info("ranked_nowhere", onnx.TensorProto.INT64, None))
    made.input.append(helper.make_tensor_sequence_value_info("many", FLOAT, ["N"]))
    made.input.append(onnx.ValueInfoProto(name="untyped"))
    assert read(tmp_path, helper.make_model(made)).inputs[1:] == (
        OnnxInput("open", "float32", (None, None, None, None, 2**40)),
        OnnxInput("ranked_nowhere", "int64", None),
        OnnxInput("many", "sequence", None),
        OnnxInput("untyped", "undefined", None),
    )


def test_every_element_type_has_its_name(tmp_path: Path) -> None:
    made = graph()
    for name, number in onnx.TensorProto.DataType.items():
        made.input.append(helper.make_tensor_value_info(name, number, [1]))
    renamed = {"FLOAT": "float32", "DOUBLE": "float64"}
    for item in read(tmp_path, helper.make_model(made)).inputs[1:]:
        assert item.elem_type == renamed.get(item.name, item.name.lower())


def test_an_unknown_element_type_is_shown_by_its_number(tmp_path: Path) -> None:
    made = graph()
    made.input.append(helper.make_tensor_value_info("new", 99, [1]))
    assert read(tmp_path, helper.make_model(made)).inputs[1].elem_type == "type99"


def test_repeated_message_fields_are_merged(tmp_path: Path) -> None:
    extra = onnx.GraphProto(input=[helper.make_tensor_value_info("z", FLOAT, [7])], initializer=[tensor("x", "d.bin")])
    pieces = helper.make_model(graph()).SerializeToString() + onnx.ModelProto(graph=extra).SerializeToString()
    found = read(tmp_path, pieces)
    assert [item.name for item in onnx.load_from_string(pieces).graph.input] == ["x", "z"]
    assert [item.name for item in found.inputs] == ["z"]
    assert found.external == ("d.bin",)


def test_a_model_of_almost_2_gib_is_read_without_its_tensors(tmp_path: Path) -> None:
    size = (2 << 30) - 4096
    head = onnx.TensorProto(name="w").SerializeToString() + varint(9 << 3 | 2) + varint(size)
    inner = graph().SerializeToString() + varint(5 << 3 | 2) + varint(len(head) + size) + head
    path = saved(tmp_path, varint(7 << 3 | 2) + varint(len(inner) + size) + inner)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size)  # a sparse file takes no disk space
        file.seek(0, os.SEEK_END)
        file.write(onnx.ModelProto(ir_version=9).SerializeToString())
    before = resource.getrusage(resource.RUSAGE_SELF)
    found = read_model(path)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert (found.ir_version, [item.name for item in found.inputs]) == (9, ["x"])
    assert after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt < 5000


def test_a_model_beyond_2_gib_is_refused_because_no_program_reads_it(tmp_path: Path) -> None:
    path = saved(tmp_path, helper.make_model(graph()).SerializeToString())
    os.truncate(path, 1 << 31)
    with pytest.raises(DamagedError, match="more than 2 GiB") as caught:
        read_model(path)
    assert "save_as_external_data=True" in caught.value.hint


@pytest.mark.parametrize("form", ["json", "textproto", "onnxtxt"])
def test_a_model_in_another_form_is_named_with_the_way_to_convert_it(tmp_path: Path, form: str) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph()), path, format=form)
    with pytest.raises(DamagedError, match=r"an ONNX model in (JSON|text form)") as caught:
        read_model(path)
    assert "onnx.load(FILE, format=" in caught.value.hint


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("a sequence", helper.make_sequence_type_proto),
        ("optional", helper.make_optional_type_proto),
        ("a map", lambda tensor: helper.make_map_type_proto(onnx.TensorProto.INT64, tensor)),
        ("a sparse tensor", lambda _: helper.make_sparse_tensor_type_proto(FLOAT, [2, 3])),
    ],
)
def test_an_input_that_is_no_tensor_is_refused_before_anything_is_asked(
    tmp_path: Path, kind: str, make: Callable[[onnx.TypeProto], onnx.TypeProto]
) -> None:
    made = helper.make_model(graph())
    made.graph.input.append(helper.make_value_info("s", make(helper.make_tensor_type_proto(FLOAT, [2]))))
    model = read(tmp_path, made.SerializeToString())
    for inputs in ({}, {"s": (1, 3)}):
        with pytest.raises(UsageError, match=f"Input s of the model is {kind}. MIGraphX takes only tensors"):
            bind_inputs(model, batch=1, inputs=inputs)


def varint(value: int) -> bytes:
    low = b""
    while value > 127:
        low, value = low + bytes([value & 127 | 128]), value >> 7
    return low + bytes([value])


# --- external data ---


def tensors_of(message: Any) -> Iterator[onnx.TensorProto]:
    """Every TensorProto in a message, found only through the descriptors of the onnx package."""
    if isinstance(message, onnx.TensorProto):
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if hasattr(value, "ListFields") else value:
                yield from tensors_of(inner)


def external_by_onnx(model: onnx.ModelProto) -> set[str]:
    external = (each for each in tensors_of(model) if each.external_data)
    return {external_data_helper.ExternalDataInfo(found).location for found in external}


def some_tensor(rng: random.Random) -> onnx.TensorProto:
    where = rng.choice([None, "a.bin", "b/c.bin", "ü.bin", "model.onnx.data", "\U0001f600", "\uffee"])
    made = tensor(rng.choice("xyzuvw"), where)
    if where and not rng.randrange(4):
        made.data_location = onnx.TensorProto.DEFAULT
    return made


def some_sparse(rng: random.Random) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(values=some_tensor(rng), indices=some_tensor(rng), dims=[3])


def some_attribute(rng: random.Random, depth: int) -> onnx.AttributeProto:
    made = onnx.AttributeProto(name="a")
    kind = rng.choice(["i", "ints", "s", "t", "tensors", "g", "graphs", "sparse_tensor", "sparse_tensors"])
    if kind in ("g", "graphs") and depth > 3:
        kind = "i"
    count = 1 if kind in ("t", "g", "sparse_tensor", "i", "s") else rng.randrange(3)
    for _ in range(count):
        if kind in ("i", "ints"):
            made.MergeFrom(onnx.AttributeProto(**{kind: rng.randrange(-9, 300) if kind == "i" else [300, -1]}))
        elif kind == "s":
            made.s = rng.randbytes(rng.choice([0, 5, 200]))
        elif kind in ("t", "tensors"):
            made.MergeFrom(onnx.AttributeProto(**{kind: some_tensor(rng) if kind == "t" else [some_tensor(rng)]}))
        elif kind in ("g", "graphs"):
            inner = some_graph(rng, depth + 1)
            made.MergeFrom(onnx.AttributeProto(**{kind: inner if kind == "g" else [inner]}))
        else:
            sparse = some_sparse(rng)
            made.MergeFrom(onnx.AttributeProto(**{kind: sparse if kind == "sparse_tensor" else [sparse]}))
    made.type = getattr(onnx.AttributeProto, kind.upper(), {"t": 4, "g": 5, "i": 2, "s": 3}.get(kind, 0))
    return made


def some_node(rng: random.Random, depth: int) -> onnx.NodeProto:
    attributes = [some_attribute(rng, depth) for _ in range(rng.randrange(3))]
    return onnx.NodeProto(op_type="Op", input=["x"], output=["y"], attribute=attributes)


def some_graph(rng: random.Random, depth: int = 0) -> onnx.GraphProto:
    names = rng.sample("xyzuvw", rng.randrange(5))
    dims = [rng.choice([1, 3, "N", "S", None]) for _ in range(rng.randrange(4))]
    return onnx.GraphProto(
        name="g",
        node=[some_node(rng, depth) for _ in range(rng.randrange(3))],
        initializer=[some_tensor(rng) for _ in range(rng.randrange(3))],
        sparse_initializer=[some_sparse(rng) for _ in range(rng.randrange(2))],
        input=[helper.make_tensor_value_info(name, rng.randrange(1, 17), dims) for name in names],
        output=[helper.make_tensor_value_info("out", FLOAT, None if rng.randrange(2) else dims)],
    )


def some_model(rng: random.Random) -> onnx.ModelProto:
    nodes = [some_node(rng, 0) for _ in range(rng.randrange(3))]
    attributes = [some_attribute(rng, 0) for _ in range(rng.randrange(2))]
    training = onnx.TrainingInfoProto(initialization=some_graph(rng, 1), algorithm=some_graph(rng, 1))
    return onnx.ModelProto(
        ir_version=rng.randrange(3, 14),
        graph=some_graph(rng),
        functions=[onnx.FunctionProto(name="f", node=nodes, attribute_proto=attributes)],
        training_info=[training] if rng.randrange(2) else [],
    )


def dims_by_onnx(value: onnx.ValueInfoProto) -> tuple[int | str | None, ...] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    dims = value.type.tensor_type.shape.dim
    return tuple(getattr(dim, dim.WhichOneof("value") or "", None) for dim in dims)


@given(st.randoms(use_true_random=False))
def test_agrees_with_the_onnx_package_on_generated_models(folder: Path, rng: random.Random) -> None:
    model = some_model(rng)
    found = read(folder, model)
    assert set(found.external) == external_by_onnx(model)
    assert list(found.external) == sorted(found.external, key=str.encode)
    by_loader = filter(external_data_helper.uses_external_data, external_data_helper._get_all_tensors(model))
    assert {external_data_helper.ExternalDataInfo(made).location for made in by_loader} <= set(found.external)
    constants = {made.name for made in model.graph.initializer}
    constants |= {made.values.name for made in model.graph.sparse_initializer}
    expected = [(v.name, dims_by_onnx(v)) for v in model.graph.input if v.name not in constants]
    assert [(item.name, item.dims) for item in found.inputs] == expected
    assert [item.dims for item in found.outputs] == [dims_by_onnx(v) for v in model.graph.output]


def test_finds_the_external_data_that_onnx_saved(tmp_path: Path) -> None:
    onnx.save(
        helper.make_model(graph(initializer=[tensor("w"), tensor("v")])),
        tmp_path / "model.onnx",
        save_as_external_data=True,
        all_tensors_to_one_file=False,
        size_threshold=0,
    )
    found = read_model(tmp_path / "model.onnx")
    assert found.external == ("v", "w")
    assert external_files(found) == (("v", tmp_path / "v"), ("w", tmp_path / "w"))


def nested(depth: int) -> bytes:
    """A model with nested graphs, encoded by hand because protobuf writes at most 100 nested messages."""
    made = graph(initializer=[tensor("w", "deep.bin")]).SerializeToString()
    for _ in range(depth - 1):
        for number in (6, 5, 1):  # AttributeProto.g, NodeProto.attribute, GraphProto.node
            made = varint(number << 3 | 2) + varint(len(made)) + made
    return varint(7 << 3 | 2) + varint(len(made)) + made


def test_subgraphs_have_a_bounded_depth(tmp_path: Path) -> None:
    assert external_by_onnx(onnx.load_from_string(nested(20))) == {"deep.bin"}
    assert read(tmp_path, nested(MAX_SUBGRAPH_DEPTH)).external == ("deep.bin",)
    for depth in (MAX_SUBGRAPH_DEPTH + 1, 5000):
        with pytest.raises(DamagedError, match="deep"):
            read(tmp_path, nested(depth))


@pytest.mark.parametrize(
    "unknown",
    [varint(99 << 3 | 5) + b"\xff" * 4, varint(99 << 3 | 1) + b"\xff" * 8, varint(14 << 3) + varint(7)],
    ids=["four bytes", "eight bytes", "an unknown data_location"],
)
def test_unknown_fields_are_ignored(tmp_path: Path, unknown: bytes) -> None:
    outside = tensor("w", "w.bin").SerializeToString() + unknown
    made = graph().SerializeToString() + varint(5 << 3 | 2) + varint(len(outside)) + outside
    content = varint(7 << 3 | 2) + varint(len(made)) + made
    assert external_by_onnx(onnx.load_from_string(content)) == {"w.bin"}
    assert read(tmp_path, content).external == ("w.bin",)


def test_an_external_tensor_without_a_location_is_damage(tmp_path: Path) -> None:
    lost = onnx.TensorProto(name="w", data_location=onnx.TensorProto.EXTERNAL)
    with pytest.raises(DamagedError, match="no location"):
        read(tmp_path, helper.make_model(graph(initializer=[lost])))


def with_location(folder: Path, location: str) -> OnnxModel:
    return read(folder, helper.make_model(graph(initializer=[tensor("w", location)])))


@pytest.mark.parametrize("location", ["w.bin", "sub/w.bin", "./w.bin", "sub/../w.bin", "sub//w.bin", "...", "ü ü"])
def test_locations_inside_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / location).write_bytes(b"data")
    ((name, path),) = external_files(with_location(tmp_path, location))
    assert (name, path.read_bytes()) == (location, b"data")


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("/etc/passwd", "absolute"),
        ("C:\\weights.bin", "backslash"),
        ("C:weights.bin", "absolute"),
        ("..\\w.bin", "backslash"),
        ("w.bin\0.txt", "NUL"),
        ("../w.bin", "outside the model's folder"),
        ("sub/../../w.bin", "outside the model's folder"),
        ("sub/../../models/w.bin", "outside the model's folder"),
        ("./..//w.bin", "outside the model's folder"),
        ("..", "outside the model's folder"),
        (".", "does not name a file"),
        ("sub/", "does not name a file"),
        ("", "does not name a file"),
        ("absent.bin", "is missing"),
        ("absent/w.bin", "is missing"),
        ("model.onnx/w.bin", "is missing"),
        ("*/_ORT_MEM_ADDR_/*", "address in memory"),
        ("dangling", "symbolic link"),
        ("linked.bin", "symbolic link"),
        ("sub", "not a regular file"),
        ("pipe", "not a regular file"),
        ("circle", "symbolic link"),
        ("n" * 300, "cannot be read"),
        ("out/w.bin", "through a link"),
        ("out/../models/w.bin", "through a link"),
    ],
)
def test_invalid_locations(tmp_path: Path, location: str, message: str) -> None:
    folder = tmp_path / "models"
    (folder / "sub").mkdir(parents=True)
    for place in (tmp_path, tmp_path / "outside", folder):
        place.mkdir(exist_ok=True)
        (place / "w.bin").write_bytes(b"data")
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "linked.bin").symlink_to("w.bin")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "circle").symlink_to("circle")
    os.mkfifo(folder / "pipe")
    with pytest.raises(DamagedError, match=message) as caught:
        external_files(with_location(folder, location))
    assert caught.value.exit == 65
    assert repr(location) in caught.value.message
    assert str(folder / "model.onnx") in caught.value.message
    assert caught.value.hint


def test_a_model_in_a_linked_folder_can_use_its_subfolders(tmp_path: Path) -> None:
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "real" / "sub" / "w.bin").write_bytes(b"data")
    (tmp_path / "link").symlink_to("real")
    ((_, path),) = external_files(with_location(tmp_path / "link", "sub/w.bin"))
    assert path == tmp_path / "link" / "sub" / "w.bin"


def test_a_model_named_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, helper.make_model(graph(initializer=[tensor("w", "w.bin")])))
    model = read_model(Path("model.onnx"))
    with pytest.raises(DamagedError, match="missing") as caught:
        external_files(model)
    assert str(tmp_path) in caught.value.hint
    (tmp_path / "w.bin").write_bytes(b"data")
    assert external_files(model) == (("w.bin", Path("w.bin")),)


# --- files that are not models ---


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html><body>404", "HTML"),
        (b"\n\n  <html>", "HTML"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>", "an XML document"),
        (b"\x1f\x8b\x08\x00" + bytes(20), "gzip"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "Git LFS"),
        (b"hello, this is a note\n", "a text file"),
        (b'{"error": "not found"}', "JSON"),
        (b"PK\x03\x04\x14\x00" + bytes(20), "zip"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b"\x85\xa7version\x08\xb0migraphx_version\xa62.16.0", "mxr"),
        (b"\x7fELF\x02\x01\x01" + bytes(20), "ELF"),
        (b"\x24\x00\x00\x00ORTM" + bytes(20), "ORT format"),
        (bytes(4096), "not an ONNX model"),
        (onnx.ModelProto(ir_version=8, producer_name="x").SerializeToString(), "no graph"),
    ],
)
def test_foreign_files_are_identified(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DamagedError, match=message) as caught:
        read(tmp_path, content)
    assert caught.value.exit == 65
    assert caught.value.hint


def test_a_truncated_graph_is_damaged(tmp_path: Path) -> None:
    model = onnx.ModelProto(ir_version=8, graph=graph(initializer=[tensor("w")])).SerializeToString()
    for size in range(1, len(model)):
        with pytest.raises(DamagedError):
            read(tmp_path, model[:size])
    with pytest.raises(DamagedError, match="truncated"):
        read(tmp_path, model[:-1])


def test_folders_and_pipes_are_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DamagedError, match="a folder"):
        read_model(tmp_path)
    with pytest.raises(DamagedError, match="not a regular file"):
        read_model(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["absent.onnx", "file/below.onnx"])
def test_a_missing_file_is_a_usage_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="There is no file") as caught:
        read_model(tmp_path / name)
    assert caught.value.exit == 2


@pytest.mark.parametrize("name", ["a\0b", "n" * 300])
def test_an_impossible_file_name_is_a_usage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_model(tmp_path / name)


def test_two_inputs_with_the_same_name_are_damage(tmp_path: Path) -> None:
    made = graph()
    made.input.append(made.input[0])
    with pytest.raises(DamagedError, match="two inputs"):
        read(tmp_path, helper.make_model(made))


@given(st.randoms(use_true_random=False), st.binary(max_size=40))
def test_any_bytes_are_a_model_or_damaged(folder: Path, rng: random.Random, noise: bytes) -> None:
    content = bytearray(some_model(rng).SerializeToString() if rng.randrange(4) else b"\x3a")
    for _ in range(rng.randrange(6)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    at = rng.randrange(len(content))
    content[at : at + rng.randrange(9)] = noise
    try:
        assert isinstance(read(folder, bytes(content)), OnnxModel)
    except DamagedError as error:
        assert error.message  # any other exception fails the test


# --- the shapes of a key ---


def model_of(**inputs: Any) -> OnnxModel:
    made = tuple(OnnxInput(name, "float32", dims) for name, dims in inputs.items())
    return OnnxModel(Path("m.onnx"), 1, made, (), (), 17, 8, "")


RANGE = (1, 8, (1, 4, 8))


@for_each(
    [
        (model_of(x=(1, 3)), None, {}, {"x": (1, 3)}),
        (model_of(x=("N", 3)), 4, {}, {"x": (4, 3)}),
        (model_of(x=(None, 3)), 4, {}, {"x": (4, 3)}),
        (model_of(x=("N", 3), y=("N", 5), z=(None,)), 4, {}, {"x": (4, 3), "y": (4, 5), "z": (4,)}),
        (model_of(x=("N", 3), fixed=(7, 2)), 4, {}, {"x": (4, 3), "fixed": (7, 2)}),
        (model_of(x=(4, 3), y=(4,)), 4, {}, {"x": (4, 3), "y": (4,)}),
        (model_of(x=("N", 3)), None, {"x": (4, 3)}, {"x": (4, 3)}),
        (model_of(x=("N", 3)), 4, {"x": (4, 3)}, {"x": (4, 3)}),
        (model_of(x=("N", 3), scalar=()), 4, {}, {"x": (4, 3), "scalar": ()}),
        (model_of(scalar=(), any=None), None, {"any": ()}, {"scalar": (), "any": ()}),
        (model_of(x=("N", 3)), None, {"x": (RANGE, 3)}, {"x": (RANGE, 3)}),
        (model_of(ids=("N", "S"), mask=("N", "S")), None, {"ids": (2, 9)}, {"ids": (2, 9), "mask": (2, 9)}),
        (model_of(ids=("N", "S"), past=("S", "N")), None, {"past": (9, 2)}, {"ids": (2, 9), "past": (9, 2)}),
        (model_of(x=("N", "N")), 3, {}, {"x": (3, 3)}),
        (model_of(a=("A", 1), b=("B", 1)), 4, {"a": (2, 1)}, {"a": (2, 1), "b": (4, 1)}),
        (model_of(a=(None, 1), b=(None, 1)), 4, {"a": (2, 1)}, {"a": (2, 1), "b": (4, 1)}),
        (model_of(), None, {}, {}),
    ]
)
def test_binds(model: OnnxModel, batch: int | None, given_dims: Any, expected: Any) -> None:
    assert bind_inputs(model, batch=batch, inputs=given_dims) == expected


@for_each(
    [
        (model_of(x=("N", 3)), None, {}, "--input x=1,3"),
        (model_of(x=("N", 3)), None, {}, "--batch"),
        (model_of(x=(None, 3)), None, {}, "--batch"),
        (model_of(ids=("N", "S")), 2, {}, "--input ids=2,128"),
        (model_of(x=("N", 3, "H", "W")), None, {}, "--input x=1,3,224,224"),
        (model_of(x=("N", 3), y=None), 2, {}, "--input y="),
        (model_of(x=("A", 3), y=("B", 3)), 2, {}, "A or B"),
        (model_of(x=(1, 3)), 2, {}, "first dim of x is fixed"),
        (model_of(x=(2, 3), y=(3, 2)), 2, {}, "first dim of y is fixed"),
        (model_of(x=("N", 3)), 2, {"x": (4, 3)}, "first dim of x"),
        (model_of(x=("N", 3), y=("N", 3)), 2, {"x": (4, 3)}, "N cannot be both 4 and"),
        (model_of(x=("N", 3), y=("N", 3)), 2, {"x": (RANGE, 3)}, "N cannot be both 1..8 and"),
        (model_of(x=("N", 3), y=("N", 3)), None, {"x": (RANGE, 3)}, "unknown, in the inputs y."),
        (model_of(x=("N", 3), y=("N", 3), z=("N",)), None, {"x": (1, 3), "y": (2, 3)}, "unknown, in the inputs z."),
        (model_of(x=("N", 3)), None, {"z": (1, 3)}, "no input z"),
        (model_of(), None, {"z": (1, 3)}, "none"),
        (model_of(x=("N", 3)), None, {"x": (1, 3, 1)}, "2 dims, not 3"),
        (model_of(x=("N", 3)), None, {"x": (1, 4)}, "is 3 in the model, not 4"),
        (model_of(x=(3,)), None, {"x": ((1, 8, ()),)}, "is 3 in the model, not 1..8"),
        (model_of(x=("N", 3)), None, {"x": (0, 3)}, "number from 1"),
        (model_of(x=("N", 3)), None, {"x": (2**63, 3)}, "number from 1"),
        (model_of(x=("N", 3)), None, {"x": ((4, 2, ()), 3)}, "number from 1"),
        (model_of(x=("N", 3)), None, {"x": ((1, 2, (3,)), 3)}, "number from 1"),
        (model_of(x=("N", 3)), 0, {}, "batch size 0"),
        (model_of(x=("N", 3)), -1, {}, "batch size -1"),
    ]
)
def test_rejects_dims_that_do_not_match(model: OnnxModel, batch: int | None, given_dims: Any, fragment: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind_inputs(model, batch=batch, inputs=given_dims)
    assert fragment in f"{caught.value.message} {caught.value.hint}"
    assert all(str(item) in caught.value.message for item in model.inputs)
    assert caught.value.context == {"inputs": [str(item) for item in model.inputs]}


def test_an_error_on_many_inputs_stays_readable() -> None:
    model = model_of(**{f"past_{number}": ("N", "S") for number in range(200)})
    with pytest.raises(UsageError) as caught:
        bind_inputs(model, batch=None, inputs={})
    assert len(caught.value.message) < 800
    assert len(caught.value.hint) < 800
    assert len(caught.value.context["inputs"]) == 200


DIMS = st.one_of(st.none(), st.lists(st.sampled_from([1, 2, 5, "N", "S", "T", None]), max_size=3).map(tuple))
MODELS = st.dictionaries(st.sampled_from("abcd"), DIMS, max_size=4).map(lambda inputs: model_of(**inputs))


def filled(dims: Any, values: dict[Any, int], rng: random.Random) -> tuple[int, ...]:
    return tuple(values.get(dim) or (dim if isinstance(dim, int) else rng.randrange(1, 9)) for dim in dims or ())


@given(MODELS, st.randoms(use_true_random=False), st.one_of(st.none(), st.sampled_from([1, 2, 5, 7])))
def test_bound_dims_follow_every_rule(model: OnnxModel, rng: random.Random, batch: int | None) -> None:
    values = {name: rng.randrange(1, 9) for name in "NST"}
    asked = {item.name: filled(item.dims, values, rng) for item in model.inputs if rng.randrange(2)}
    try:
        bound = bind_inputs(model, batch=batch, inputs=asked)
    except UsageError:
        return
    assert list(bound) == [item.name for item in model.inputs]
    symbols: dict[str, set[Any]] = {}
    for item in model.inputs:
        dims = bound[item.name]
        assert item.name not in asked or dims == asked[item.name]
        assert item.dims is not None or item.name in asked
        for place, (dim, own) in enumerate(zip(dims, dims if item.dims is None else item.dims, strict=True)):
            assert not isinstance(own, int) or dim == own
            assert own is not None or item.name in asked or (place == 0 and dim == batch)
            if isinstance(own, str):
                symbols.setdefault(own, set()).add(dim)
        if batch is not None and item.name not in asked and dims and not isinstance((item.dims or (1,))[0], int):
            assert dims[0] == batch
    assert all(len(found) == 1 for found in symbols.values())
    shuffled = dict(rng.sample(list(asked.items()), len(asked)))
    assert bind_inputs(model, batch=batch, inputs=shuffled) == bound


@given(MODELS, st.randoms(use_true_random=False))
def test_without_a_batch_it_binds_exactly_if_every_dim_is_given(model: OnnxModel, rng: random.Random) -> None:
    values = {name: rng.randrange(1, 9) for name in "NST"}
    asked = {item.name: filled(item.dims, values, rng) for item in model.inputs if rng.randrange(2)}
    bound_symbols = {dim for item in model.inputs if item.name in asked for dim in item.dims or ()}
    rest = [item.dims for item in model.inputs if item.name not in asked]
    known = [dims is not None and all(isinstance(d, int) or (d and d in bound_symbols) for d in dims) for dims in rest]
    if all(known):
        bound = bind_inputs(model, batch=None, inputs=asked)
        assert bound == {i.name: asked.get(i.name, filled(i.dims, values, rng)) for i in model.inputs}
    else:
        with pytest.raises(UsageError, match="Some dims are unknown"):
            bind_inputs(model, batch=None, inputs=asked)


def test_stated_dims_count_where_a_symbol_gets_two_sizes() -> None:
    """MIGraphX takes the dims by the names of the inputs."""
    model = model_of(x=("N", 3), y=("N", "N"))
    dims = {"x": (1, 3), "y": (2, 4)}
    assert bind_inputs(model, batch=None, inputs=dims) == dims
    assert differing_symbols(model, dims) == {"N": [1, 2, 4]}
    assert differing_symbols(model, {"x": (2, 3), "y": (2, 2)}) == {}


@pytest.mark.parametrize("name", ["?", "-1", "None", "null", "N/A", "unk__17", "unknown", " ", ""])
def test_placeholders_are_no_symbols(tmp_path: Path, name: str) -> None:
    """Exporters give one name to all unknown dims: InsightFace's detectors call height and width `?`."""
    value = helper.make_tensor_value_info("x", FLOAT, [1, 3, name, name])
    made = helper.make_model(graph(input=[value]))
    del made.graph.input[0]
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    model = read_model(path)
    (found,) = (item for item in model.inputs if item.name == "x")
    assert found.dims == (1, 3, None, None)
    assert bind_inputs(model, batch=None, inputs={"x": (1, 3, 480, 640)}) == {"x": (1, 3, 480, 640)}
