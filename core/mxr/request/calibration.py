"""Calibration data for int8 and fp8: an .npz file with one array of samples for each input of the model.

The file is checked by its headers and bytes alone: nothing is unpickled, nothing beyond what the headers announce is
decompressed, and numpy is not needed. Sources: numpy, doc/neps/nep-0001-npy-format.rst and numpy.savez; MIGraphX,
src/py/migraphx_py.cpp (quantize_int8 and quantize_fp8 take a list of samples).
"""

from __future__ import annotations

import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from mxr.artifact import limits
from mxr.artifact.target import DynamicDim, Inputs
from mxr.errors import UsageError
from mxr.onnxfile import OnnxInput
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import sha256_file

MAX_DATA_BYTES = 4 << 30
"""Bytes of all arrays together, decompressed."""

MAX_FILE_BYTES = MAX_DATA_BYTES + (64 << 20)
"""Bytes of the file."""

MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 10_000
"""Bytes. Source: numpy, numpy/lib/format.py, _MAX_HEADER_SIZE."""

STEP = 1 << 20

_HEADER = re.compile(
    r"\{\s*'descr':\s*'(?P<descr>[^']{1,10})',\s*'fortran_order':\s*(True|False),"
    r"\s*'shape':\s*\((?P<dims>(?:\s*[0-9]{1,12}\s*(?:,|(?=\))))*)\s*\),?\s*\}\s*",
    re.ASCII,
)
"""The header of an array, with the keys in the order that the format asks for."""

_TYPES = {"bool": "b1", **{f"float{bits}": f"f{bits // 8}" for bits in (16, 32, 64)}}
_TYPES |= {f"{sign}int{bits}": f"{sign[:1] or 'i'}{bits // 8}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
"""The type of an array by ONNX element type, in numpy's notation without the byte order."""

_EXPONENTS = {"f2": (0x7C,), "f4": (0x7F, 0x80), "f8": (0x7F, 0xF0)}
"""The bits of the highest bytes that are all set in NaN and infinity. Source: IEEE 754."""

_HINT = (
    "Write it with numpy.savez('samples.npz', INPUT=samples): one array for each input, samples along the first axis."
)


@dataclass(frozen=True, slots=True)
class _Array:
    """The header of an array: its type (`<f4`), its dims, and the position of its data in the member."""

    descr: str
    dims: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """Bytes of the data."""
        return math.prod(self.dims) * int(self.descr[2:])


def sha256(path: Path) -> str:
    """Return the sha256 of a file with calibration data. Raises a disk fault."""
    with disk.faults(path, "read"):
        return sha256_file(path)


def check_calibration(path: Path, inputs: Sequence[OnnxInput], shapes: Inputs) -> None:
    """Check calibration data against the inputs of a model and the shapes of a request.

    Raises `UsageError` that names the input: for a missing or unknown one, for another type, for other dims, for
    different numbers of samples, and for values that are not finite. Raises a disk fault.
    """
    with disk.faults(path, "read"), path.open("rb") as file:
        try:
            if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                raise _UnusableError(f"it has more than {MAX_DATA_BYTES >> 30} GiB")
            with zipfile.ZipFile(file) as archive:
                _check(archive, inputs, dict(shapes))
        except _UnusableError as problem:
            why = str(problem)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as problem:
            file.seek(0)
            single = file.read(len(MAGIC)) == MAGIC
            why = "it is one array without a name (.npy)" if single else f"it is not an .npz file ({problem})"
        else:
            return
    raise UsageError(f"The calibration data {path.name} cannot be used: {why}.", hint=_HINT)


class _UnusableError(Exception):
    """Why calibration data cannot be used."""


def _check(
    archive: zipfile.ZipFile, inputs: Sequence[OnnxInput], shapes: dict[str, tuple[int | DynamicDim, ...]]
) -> None:
    members = _members(archive)
    known = {item.name: item for item in inputs}
    if foreign := [name for name in members if name not in known]:
        raise _UnusableError(f"the model has no input {foreign[0]}; its inputs are {', '.join(known) or 'none'}")
    if missing := [name for name in known if name not in members]:
        raise _UnusableError(f"it has no array for the input {missing[0]}")
    arrays = {name: _header(name, archive, member) for name, member in members.items()}
    if sum(array.size for array in arrays.values()) > MAX_DATA_BYTES:
        raise _UnusableError(f"its arrays have more than {MAX_DATA_BYTES >> 30} GiB")
    for name, array in arrays.items():
        _check_type(known[name], array)
    _check_counts({name: _samples(name, array, shapes[name]) for name, array in arrays.items()})
    for name, array in arrays.items():
        if not _is_finite(archive, members[name], array):
            raise _UnusableError(f"the samples of the input {name} contain NaN or infinity")


def _check_counts(counts: dict[str, int]) -> None:
    most = max(counts.values(), default=0)
    for name, count in counts.items():
        if count not in (1, most):
            larger = next(other for other in counts if counts[other] == most)
            raise _UnusableError(f"the input {name} has {count} samples, and {larger} has {most}")


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The arrays by name."""
    listed = archive.infolist()
    if len(listed) > limits.MAX_INPUTS:
        raise _UnusableError(f"it has {len(listed)} arrays; a model has at most {limits.MAX_INPUTS} inputs")
    found: dict[str, zipfile.ZipInfo] = {}
    for member in listed:
        name = member.filename.removesuffix(".npy")
        if name == member.filename or name in found:
            raise _UnusableError(f"{member.filename} in it is not an array (.npy), or is there twice")
        found[name] = member
    return found


def _header(name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> _Array:
    with archive.open(member) as stream:
        head = stream.read(12)
        length, start = (struct.unpack("<H", head[8:10])[0], 10) if head[6:7] == b"\1" else (_long(head), 12)
        if not head.startswith(MAGIC) or length > MAX_HEADER_BYTES:
            raise _UnusableError(f"the member for the input {name} is not an array in numpy's format")
        text = (head[start:] + stream.read(length + start - len(head))).decode("latin-1")
    fields = _HEADER.fullmatch(text)
    if fields is None:
        raise _UnusableError(f"the array for the input {name} is not an array of plain numbers")
    descr, dims = fields["descr"], tuple(int(dim) for dim in fields["dims"].split(",") if dim.strip())
    if "O" in descr:
        raise _UnusableError(f"the array for the input {name} holds pickled Python objects, which are not read")
    if not re.fullmatch(r"[<>|=][biufc][0-9]{1,2}", descr) or len(dims) > limits.MAX_DIMS:
        raise _UnusableError(f"the array for the input {name} is not an array of plain numbers")
    found = _Array(descr, dims, start + length)
    if found.start + found.size != member.file_size:
        raise _UnusableError(f"the array for the input {name} is damaged: its header and its size differ")
    return found


def _long(head: bytes) -> int:
    return int.from_bytes(head[8:12], "little")


def _check_type(item: OnnxInput, array: _Array) -> None:
    wanted, found = _TYPES.get(item.elem_type), array.descr[1:]
    if wanted is None:
        raise _UnusableError(f"the input {item.name} is {item.elem_type}, for which no calibration data can be given")
    # Scales are measured in floats: any width will do. An integer is an index, and must not wrap around.
    if found != wanted and not (found in _EXPONENTS and wanted in _EXPONENTS):
        raise _UnusableError(f"the samples of the input {item.name} are {array.descr}, not {item.elem_type}")


def _samples(name: str, array: _Array, shape: tuple[int | DynamicDim, ...]) -> int:
    """The number of samples: arrays of the input's dims, stacked along a new first axis or joined along the first."""
    dims = tuple(dim if isinstance(dim, int) else dim.most for dim in shape)
    found = array.dims
    if found == dims:
        return 1
    if found and found[1:] == dims and found[0]:
        return found[0]
    if dims and found[1:] == dims[1:] and found[0] and found[0] % dims[0] == 0:
        return found[0] // dims[0]
    more = ""
    if dims and found[1:] == dims[1:] and found[0]:
        more = f" ({found[0]} samples are not a multiple of the batch size {dims[0]})"
    raise _UnusableError(
        f"the samples of the input {name} have the dims {_shown(found)}, and one sample has {_shown(dims)}{more}"
    )


def _shown(dims: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, dims))}]"


def _is_finite(archive: zipfile.ZipFile, member: zipfile.ZipInfo, array: _Array) -> bool:
    masks = _EXPONENTS.get(array.descr[1:], ())
    width = int(array.descr[2:])
    tables = [bytes(value & mask == mask for value in range(256)) for mask in masks]
    order = range(width) if array.descr[0] == ">" else range(width - 1, -1, -1)
    with archive.open(member) as stream:
        stream.read(array.start)
        for chunk in _chunks(stream):
            # All of the data is read in any case, because that verifies its checksum.
            if not masks:
                continue
            bits = [chunk[at::width].translate(table) for at, table in zip(order, tables, strict=False)]
            set_in_all = int.from_bytes(bits[0], "little")
            for each in bits[1:]:
                set_in_all &= int.from_bytes(each, "little")
            if set_in_all:
                return False
    return True


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """The data in pieces of whole numbers."""
    rest = b""
    while data := stream.read(STEP):
        data = rest + data
        whole = len(data) - len(data) % 8
        yield data[:whole]
        rest = data[whole:]
    if rest:
        yield rest
