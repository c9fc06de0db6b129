"""Opens an ONNX file and reads it in one pass, and computes a digest of its graph without the weights.

A model and its fine-tuned variants have the same digest, and take similar time to compile. The digest includes the
nodes with their attributes, and the names, types and dims of inputs, outputs and initializers. It excludes tensor
contents, external data locations, node names, documentation and the producer of the file.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from mxr.errors import DamagedError, UsageError

from .external import MAX_SUBGRAPH_DEPTH, ForbiddenExternalData, forbidden, tensors_in
from .graph import OnnxModel, OutputDim, default_opset, ends, type_name
from .protobuf import Bytes, MalformedProtobuf, Span, append_part, fields, message, opened, signed, text, varint_of

MAX_SIZE = 2**31 - 1
"""The largest message that protobuf reads, in MIGraphX and elsewhere. Source: protobuf.dev, "Proto Limits"."""


def read_model(path: Path, *, weight_dims: bool = False) -> OnnxModel:
    """Read the ONNX file at `path`, with the dims of outputs that follow from the weights if `weight_dims` is set.

    Raises `UsageError` if it cannot be opened, `DamagedError` if it is not an ONNX model, and `TemporaryError` if it
    changes meanwhile.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # before open(), which would block on a pipe
            what = "a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file"
            raise DamagedError(f"{path} is {what}, not a model.", hint="Pass the ONNX file itself.")
        with opened(path) as data:
            if not len(data):
                raise DamagedError(f"{path} is empty.")
            return _read(path, data, weight_dims=weight_dims)
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise UsageError(
                f"{path} is a symbolic link to {path.readlink()}, which does not exist.",
                hint="Download the model again: what the link names was removed.",
            ) from None
        raise UsageError(f"There is no file {path}.", hint="Check the path of the model.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {reason}.", hint="Check the path and its permissions.") from None
    except ForbiddenExternalData as fault:
        raise forbidden(path, fault) from None
    except MalformedProtobuf as broken:
        raise _no_model(path, broken) from None


def _no_model(path: Path, broken: MalformedProtobuf) -> DamagedError:
    """Return the error for a file that cannot be read as a model, with what it is instead."""
    from .file_types import HEAD, HINTS, MODEL, file_type

    try:
        with path.open("rb") as file:
            kind = file_type(file.read(HEAD))
    except OSError:
        kind = ""
    what = f"It looks like {kind}." if kind not in ("", MODEL) else f"{broken}."
    return DamagedError(f"{path} is not an ONNX model. {what}", hint=HINTS.get(kind))


def walk_model(path: Path, data: Bytes) -> OnnxModel:
    """Read all facts from the bytes of an ONNX file. Raises `DamagedError` if they are not an ONNX model.

    `path` is for messages.
    """
    try:
        return _read(path, data, weight_dims=True)
    except ForbiddenExternalData as fault:
        raise forbidden(path, fault) from None
    except MalformedProtobuf as broken:
        raise DamagedError(f"{path} is not an ONNX model. {broken}.") from None


def _read(path: Path, data: Bytes, *, weight_dims: bool) -> OnnxModel:
    if len(data) > MAX_SIZE:
        raise DamagedError(
            f"{path} has {len(data)} bytes, and no program reads an ONNX file of more than 2 GiB.",
            hint="Save it with its weights beside it: onnx.save(model, path, save_as_external_data=True).",
        )
    spans: list[Span] = []
    opset, ir_version, producer = None, 0, ""
    for tag, start, stop in fields(data, 0, len(data)):
        if tag == message(7):
            append_part(spans, (start, stop))
        elif tag == message(8):
            opset = default_opset(data, (start, stop), opset)
        elif tag == varint_of(1):
            ir_version = signed(start)
        elif tag == message(2):
            producer = text(data, start, stop)
    if not spans:
        raise MalformedProtobuf("It contains no graph")
    inputs, outputs = ends(data, spans)
    locations, numbers, operators = tensors_in(data)
    types = frozenset({*map(type_name, numbers), *(each.elem_type for each in (*inputs, *outputs))})
    external = tuple(sorted(locations, key=str.encode))
    dims: Mapping[str, OutputDim] = {}
    if weight_dims:
        from .weight_dims import dims_from_weights

        dims = dims_from_weights(data, spans, [output.name for output in outputs])
    return OnnxModel(
        path,
        len(data),
        inputs,
        outputs,
        external,
        opset,
        ir_version,
        producer,
        types,
        frozenset(operators),
        tuple(dims.items()),
        tuple(locations[name] for name in external),
    )


# By message: the fields that the digest includes. The value is the kind of a submessage, or None to include the bytes.
_FIELDS: dict[str, dict[int, str | None]] = {
    "model": {7: "graph", 8: None, 25: "function"},
    "graph": {1: "node", 5: "tensor", 11: "value", 12: "value", 15: "sparse"},
    "node": {1: None, 2: None, 4: None, 7: None, 8: None, 5: "attribute"},
    "attribute": dict.fromkeys((1, 2, 3, 4, 7, 8, 9, 14, 15, 20, 21))
    | {5: "tensor", 10: "tensor", 6: "graph", 11: "graph", 22: "sparse", 23: "sparse"},
    "tensor": dict.fromkeys((1, 2, 8)),
    "sparse": {1: "tensor", 2: "tensor", 3: None},
    "value": dict.fromkeys((1, 2)),
    "function": dict.fromkeys((1, 4, 5, 6, 9, 10, 13)) | {7: "node", 11: "attribute"},
}

MAX_DEPTH = 3 * MAX_SUBGRAPH_DEPTH + 4
"""Maximum nesting depth of messages: each subgraph is in an attribute, which is in a node, which is in a graph."""

PIECE = 1 << 20


def structure_of(data: Bytes) -> str:
    """Return the SHA-256 of the structure of the ONNX model in `data`. Raises `DamagedError` if it is not an ONNX
    model.

    The same model saved by another library may have another digest, because fields are compared byte by byte.
    """
    try:
        return _digest(data)
    except MalformedProtobuf as broken:
        raise DamagedError(f"This is not an ONNX model. {broken}.") from None


def _digest(data: Bytes) -> str:
    found = sha256(b"mxr structure 1")
    stack: list[tuple[str, Iterator[tuple[int, int, int]]]] = [("model", fields(data, 0, len(data)))]
    while stack:
        kind, remaining = stack[-1]
        field = next(remaining, None)
        if field is None:
            stack.pop()
            found.update(b")")
            continue
        tag, start, stop = field
        included = _FIELDS[kind]
        if tag >> 3 not in included:
            continue
        inner = included[tag >> 3]
        if inner is None:
            _add(found.update, data, tag, start, stop)
        elif tag & 7 == 2:
            if len(stack) > MAX_DEPTH:
                raise MalformedProtobuf(f"Its graphs are nested more than {MAX_SUBGRAPH_DEPTH} deep")
            found.update(b"(" + tag.to_bytes(10, "little"))
            stack.append((inner, fields(data, start, stop)))
    return found.hexdigest()


def _add(update: Callable[[bytes], None], data: Bytes, tag: int, start: int, stop: int) -> None:
    """Add the bytes of a field. For a varint, `start` is its value."""
    length = stop - start if tag & 7 else 8
    update(b"=" + tag.to_bytes(10, "little") + length.to_bytes(8, "little"))
    if not tag & 7:
        update(start.to_bytes(8, "little"))
        return
    for at in range(start, stop, PIECE):
        update(bytes(data[at : min(stop, at + PIECE)]))
