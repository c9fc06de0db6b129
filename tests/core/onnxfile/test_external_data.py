"""Attacks by external data: which files a model may name, wherever its tensors are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from harness.onnx_files import read, saved
from onnx import helper

from mxr.errors import DamagedError, UsageError
from mxr.onnxfile import OnnxModel, check_folder, external_files, read_model

FLOAT = onnx.TensorProto.FLOAT


def graph(**fields: object) -> onnx.GraphProto:
    ends = [helper.make_tensor_value_info(end, FLOAT, ["N", 3]) for end in ("x", "y")]
    node = helper.make_node("Relu", ["x"], ["y"])
    made = onnx.GraphProto(name="g", node=[node], input=ends[:1], output=ends[1:])
    made.MergeFrom(onnx.GraphProto(**fields))
    return made


def tensor(name: str, location: str | None = None) -> onnx.TensorProto:
    made = with_entries(*([("location", location), ("offset", "0")] if location else []), raw=location is None)
    made.name = name
    return made


def with_location(folder: Path, location: str) -> OnnxModel:
    return read(folder, helper.make_model(graph(initializer=[tensor("w", location)])))


def varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


CARRIERS: dict[str, Callable[[onnx.TensorProto], onnx.ModelProto]] = {
    "initializer": lambda made: onnx.ModelProto(graph=graph(initializer=[made])),
    "sparse values": lambda made: onnx.ModelProto(
        graph=graph(sparse_initializer=[onnx.SparseTensorProto(values=made, indices=tensor("i"))])
    ),
    "sparse indices": lambda made: onnx.ModelProto(
        graph=graph(sparse_initializer=[onnx.SparseTensorProto(values=tensor("v"), indices=made)])
    ),
    "attribute": lambda made: in_node(onnx.AttributeProto(name="value", type=4, t=made)),
    "attribute list": lambda made: in_node(onnx.AttributeProto(name="value", type=9, tensors=[made])),
    "sparse attribute": lambda made: in_node(
        onnx.AttributeProto(name="a", type=11, sparse_tensor=onnx.SparseTensorProto(values=made))
    ),
    "sparse attribute list": lambda made: in_node(
        onnx.AttributeProto(name="a", type=12, sparse_tensors=[onnx.SparseTensorProto(values=made)])
    ),
    "subgraph": lambda made: in_node(onnx.AttributeProto(name="then_branch", type=5, g=graph(initializer=[made]))),
    "subgraph list": lambda made: in_node(onnx.AttributeProto(name="b", type=10, graphs=[graph(initializer=[made])])),
    "attribute in a subgraph": lambda made: in_node(
        onnx.AttributeProto(name="body", type=5, g=in_node(onnx.AttributeProto(name="value", type=4, t=made)).graph)
    ),
    "function": lambda made: onnx.ModelProto(
        graph=graph(),
        functions=[
            onnx.FunctionProto(name="f", node=in_node(onnx.AttributeProto(name="value", type=4, t=made)).graph.node)
        ],
    ),
    "function default": lambda made: onnx.ModelProto(
        graph=graph(),
        functions=[onnx.FunctionProto(name="f", attribute_proto=[onnx.AttributeProto(name="value", type=4, t=made)])],
    ),
    "training": lambda made: onnx.ModelProto(
        graph=graph(), training_info=[onnx.TrainingInfoProto(algorithm=graph(initializer=[made]))]
    ),
}


def in_node(attribute: onnx.AttributeProto) -> onnx.ModelProto:
    node = onnx.NodeProto(op_type="Constant", output=["c"], attribute=[attribute])
    return onnx.ModelProto(graph=graph(node=[node]))


def with_entries(*entries: tuple[str, str], flag: int | None = None, raw: bool = False) -> onnx.TensorProto:
    made = onnx.TensorProto(name="w", data_type=FLOAT, dims=[1])
    for key, value in entries:
        made.external_data.add(key=key, value=value)
    if flag is not None:
        made.data_location = flag
    if raw:
        made.raw_data = b"\0\0\x80\x3f"
    return made


@pytest.mark.parametrize("carrier", list(CARRIERS))
def test_no_tensor_can_hide_the_file_that_migraphx_would_read(tmp_path: Path, carrier: str) -> None:
    """MIGraphX reads the value of the first entry, whatever its key and `data_location` say."""
    make = CARRIERS[carrier]
    for flag, raw in itertools.product((None, onnx.TensorProto.DEFAULT, onnx.TensorProto.EXTERNAL), (False, True)):
        # With and without the flag, such a file belongs to the model.
        made = with_entries(("location", "w.bin"), ("offset", "0"), flag=flag, raw=raw)
        assert read(tmp_path, make(made)).external == ("w.bin",)
        for target in ("/proc/self/environ", "../secret", "sub/../../secret", "/etc/passwd"):
            with pytest.raises(DamagedError, match="refused"):
                read(tmp_path, make(with_entries(("location", target), flag=flag, raw=raw)))
            # Another key, an empty key, a key in other letters, and a harmless location behind or before it.
            for key in ("checksum", "", "Location", "offset"):
                with pytest.raises(DamagedError, match="not its only location"):
                    read(tmp_path, make(with_entries((key, target), ("location", "w.bin"), flag=flag, raw=raw)))
                with pytest.raises(DamagedError, match="not its only location"):
                    read(tmp_path, make(with_entries((key, target), flag=flag, raw=raw)))
            twice = with_entries(("location", "w.bin"), ("location", target), flag=flag, raw=raw)
            with pytest.raises(DamagedError, match="not its only location"):
                read(tmp_path, make(twice))


def test_occurrences_of_one_message_are_checked_as_protobuf_merges_them(tmp_path: Path) -> None:
    """An attribute has one tensor. Protobuf appends the entries of its later occurrences to the first."""
    parts = [with_entries(("location", "w.bin")), with_entries(("location", "other.bin"))]
    encoded = b"".join(field(5, each.SerializeToString()) for each in parts)
    content = field(7, field(1, field(5, encoded)))
    (merged,) = onnx.load_from_string(content).graph.node[0].attribute
    assert [entry.value for entry in merged.t.external_data] == ["w.bin", "other.bin"]
    with pytest.raises(DamagedError, match="not its only location"):
        read(tmp_path, content)
    # The first occurrence names the file, the second the entries that look like it.
    parts = [with_entries(), with_entries(("location", "/etc/passwd"))]
    content = field(7, field(1, field(5, b"".join(field(5, each.SerializeToString()) for each in parts))))
    with pytest.raises(DamagedError, match="absolute"):
        read(tmp_path, content)


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def test_a_field_number_beyond_32_bits_is_refused(tmp_path: Path) -> None:
    """Protobuf's C++ parser drops these bits, and would read a field that this reader skips as unknown."""
    hidden = with_entries(("location", "/etc/passwd")).SerializeToString()
    for number in (5, 15):
        tag = varint(number << 3 | 2 | 1 << 32)
        inner = tag + varint(len(hidden)) + hidden
        with pytest.raises(DamagedError, match="invalid number"):
            read(tmp_path, field(7, graph().SerializeToString() + inner))


def test_the_names_of_a_manifest_must_be_those_in_the_file(tmp_path: Path) -> None:
    model = with_location(tmp_path, "sub/w.bin")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"data")
    check_folder(model, {"sub/w.bin"})
    for names in (set(), {"w.bin"}, {"sub/w.bin", "more.bin"}):
        with pytest.raises(DamagedError, match="manifest"):
            check_folder(model, names)
    (tmp_path / "sub").rename(tmp_path / "elsewhere")
    (tmp_path / "sub").symlink_to("elsewhere")
    with pytest.raises(DamagedError, match="symbolic link"):
        check_folder(model, {"sub/w.bin"})
    (tmp_path / "sub").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "sub")
    (tmp_path / "sub" / "w.bin").rename(tmp_path / "real")
    (tmp_path / "sub" / "w.bin").symlink_to(tmp_path / "real")
    with pytest.raises(DamagedError, match="symbolic link"):
        check_folder(model, {"sub/w.bin"})


def test_links_are_followed_only_inside_one_hugging_face_folder(tmp_path: Path) -> None:
    """In a Hugging Face cache the model and its data are links to files in the folder `blobs` of the same model."""
    hub, other = tmp_path / "models--me--one", tmp_path / "models--me--two"
    blobs, snapshot = hub / "blobs", hub / "snapshots" / "abc"
    for each in (blobs, snapshot, other):
        each.mkdir(parents=True)
    saved(blobs, helper.make_model(graph(initializer=[tensor("w", "model.onnx_data")])), "1111")
    for place in (blobs / "2222", other / "2222", tmp_path / "2222"):
        place.write_bytes(b"data")
    (snapshot / "model.onnx").symlink_to("../../blobs/1111")
    data = snapshot / "model.onnx_data"
    data.symlink_to("../../blobs/2222")
    model = read_model(snapshot / "model.onnx")
    assert external_files(model) == (("model.onnx_data", data),)
    for target in ("../../../models--me--two/2222", "../../../2222", str(tmp_path / "2222")):
        data.unlink()
        data.symlink_to(target)
        with pytest.raises(DamagedError, match="symbolic link") as caught:
            external_files(model)
        assert "--follow-links" in caught.value.hint
        assert external_files(model, follow_links=True) == (("model.onnx_data", data),)
    with pytest.raises(DamagedError, match="symbolic link"):
        check_folder(model, {"model.onnx_data"})


def _external(dims: list[int], kind: int, *entries: tuple[str, str]) -> onnx.TensorProto:
    made = onnx.TensorProto(name="w", data_type=kind, dims=dims, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), *entries):
        made.external_data.add(key=key, value=value)
    return made


@pytest.mark.parametrize(
    ("made", "needed"),
    [
        (_external([3, 5], onnx.TensorProto.FLOAT), 60),
        (_external([3, 5], onnx.TensorProto.FLOAT, ("offset", "4096")), 4156),
        (_external([3, 5], onnx.TensorProto.FLOAT, ("length", "80")), 80),
        (_external([3, 5], onnx.TensorProto.FLOAT, ("offset", "4"), ("length", "16")), 64),
        (_external([5], onnx.TensorProto.INT4), 3),
        (_external([5], onnx.TensorProto.COMPLEX128), 80),
        (_external([], onnx.TensorProto.DOUBLE), 8),
        (_external([0, 9], onnx.TensorProto.DOUBLE), 0),
        (_external([7], 77, ("length", "9")), 9),
    ],
    ids=str,
)
def test_a_file_that_is_shorter_than_its_tensors_is_refused(
    tmp_path: Path, made: onnx.TensorProto, needed: int
) -> None:
    """A download that broke off would be another model: keyed, uploaded, and refused by every worker."""
    model = read(tmp_path, helper.make_model(graph(initializer=[made])))
    assert model.external_sizes == (needed,)
    file = tmp_path / "w.bin"
    if needed:
        file.write_bytes(bytes(needed - 1))
        for check in (lambda: external_files(model), lambda: check_folder(model, {"w.bin"})):
            with pytest.raises(DamagedError, match=f"has {needed - 1} bytes, and the tensors in it need {needed}"):
                check()
    file.write_bytes(bytes(needed))
    assert external_files(model) == (("w.bin", file),)
    check_folder(model, {"w.bin"})


@pytest.mark.parametrize("entry", [("offset", "-4"), ("offset", "x"), ("length", "9" * 30), ("length", "١")])
def test_an_offset_that_is_no_number_is_refused(tmp_path: Path, entry: tuple[str, str]) -> None:
    with pytest.raises(DamagedError, match="is no number"):
        read(tmp_path, helper.make_model(graph(initializer=[_external([2], onnx.TensorProto.FLOAT, entry)])))


def test_a_link_to_what_was_removed_is_said_to_be_one(tmp_path: Path) -> None:
    """A snapshot of a hub's cache whose blob is gone: `ls` shows the file."""
    model = with_location(tmp_path, "w.bin")
    (tmp_path / "w.bin").symlink_to("../../blobs/gone")
    with pytest.raises(DamagedError, match=r"is a symbolic link to \.\./\.\./blobs/gone, which does not exist"):
        external_files(model, follow_links=True)
    (tmp_path / "m.onnx").symlink_to("../blobs/gone")
    with pytest.raises(UsageError, match=r"is a symbolic link to \.\./blobs/gone, which does not exist"):
        read_model(tmp_path / "m.onnx")
