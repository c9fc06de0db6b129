"""Reads programs saved as JSON: the same tree as in MessagePack, with each binary written as `{"bytes":[...]}`.

MIGraphX 2.16 writes this form for save(..., format="json"). The file is read completely into memory, so its size is
limited. A plain array of bytes in the place of a binary is also accepted.
"""

from __future__ import annotations

import json
import re

from mxr.errors import DamagedError
from mxr.program.messagepack import Binary, damaged
from mxr.program.source import BytesSource, Source, Span

MAX_BYTES = 32 << 20
"""Maximum size in bytes of a JSON program."""
MAX_MEMORY_BYTES = 160 << 20
"""Maximum memory in bytes for its tree, estimated from its punctuation."""

# A single character class repeats without a backtracking stack: 16 million numbers need no extra memory.
_NUMBERS = re.compile(rb"\[[\d\s,]{127,}\]")
_MIN_NUMBERS = 64
_TOO_LARGE_FOR_A_BYTE = re.compile(rb"\d{4}")
_BINARY_KEYS = ("data", "code_object", "solution_object")
_BINARY = {"bytes"}
_MARK = "mxr binary "


def is_json(source: Source) -> bool:
    """Whether the source begins like a JSON object. No MessagePack map does."""
    return source.read_at(0, 256).lstrip()[:1] == b"{"


def load_json_program(source: Source) -> tuple[dict[str, object], BytesSource]:
    """Return the tree of the program and a source that contains its binaries.

    Raises `DamagedError` if the source is not valid JSON or exceeds the limits.
    """
    if source.size > MAX_BYTES:
        raise DamagedError(
            f"The JSON program has {source.size} bytes; the maximum is {MAX_BYTES}.",
            hint="Save the program as MessagePack: migraphx.save(program, path).",
            context={"offset": 0},
        )
    blobs = bytearray()
    text = _fold_binaries(source.read_at(0, source.size), blobs)
    _check_memory(text)
    tree = _parse(text, blobs)
    if not isinstance(tree, dict):
        raise damaged("Expected a JSON object", 0)
    return tree, BytesSource(bytes(blobs))


def _fold_binaries(text: bytes, blobs: bytearray) -> bytes:
    """Replace each long array of bytes by a mark. Padding keeps the offsets in the text unchanged."""

    def fold(match: re.Match[bytes]) -> bytes:
        array = match.group()
        if array.count(b",") < _MIN_NUMBERS - 1 or _TOO_LARGE_FOR_A_BYTE.search(array):
            return array
        start = len(blobs)
        try:
            for piece in _slices(array[1:-1]):
                blobs.extend(map(int, piece.split(b",")))
        except ValueError:  # a number above 255, so not an array of bytes
            del blobs[start:]
            return array
        return f'"{_MARK}{start}:{len(blobs) - start}"'.encode().ljust(len(array))

    return _NUMBERS.sub(fold, text)


def _slices(numbers: bytes, length: int = 1 << 16) -> list[bytes]:
    """Split the text before commas into pieces of about `length` bytes, so that no list of all numbers is needed."""
    pieces, at = [], 0
    while at < len(numbers):
        comma = numbers.find(b",", at + length)
        end = comma if comma >= 0 else len(numbers)
        pieces.append(numbers[at:end])
        at = end + 1
    return pieces


def _check_memory(text: bytes) -> None:
    containers = text.count(b"{") + text.count(b"[")
    widest = 1 if text.isascii() else 4
    if 250 * containers + 32 * text.count(b'"') + 36 * text.count(b",") + widest * len(text) > MAX_MEMORY_BYTES:
        raise damaged("The number of JSON values exceeds that of any program", 0)


def _parse(text: bytes, blobs: bytearray) -> object:
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, blobs))
    except json.JSONDecodeError as error:
        raise damaged(f"Invalid JSON: {error.msg}", len(error.doc[: error.pos].encode())) from error
    except UnicodeDecodeError as error:
        raise damaged("Invalid JSON: the text is not UTF-8", error.start) from error
    except (ValueError, RecursionError) as error:
        raise damaged("Invalid JSON: a number is too long or the nesting is too deep", 0) from error


def _object(pairs: list[tuple[str, object]], blobs: bytearray) -> object:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise damaged("A JSON object has a duplicate key", 0)
    if found.keys() == _BINARY:
        return _binary(found["bytes"], blobs)
    for key in _BINARY_KEYS:
        if key in found:
            found[key] = _binary(found[key], blobs)
    return found


def _binary(value: object, blobs: bytearray) -> object:
    """The binary that the value represents, or the value itself if it represents none."""
    if isinstance(value, str) and value.startswith(_MARK):
        offset, _, size = value.removeprefix(_MARK).partition(":")
        if offset.isdecimal() and size.isdecimal() and int(offset) + int(size) <= len(blobs):
            return Binary((Span(int(offset), int(size)),))
    if not isinstance(value, list):
        return value
    if value and all(isinstance(part, str | list) for part in value):
        chunks = [_binary(part, blobs) for part in value]
        return Binary(tuple(span for chunk in chunks if isinstance(chunk, Binary) for span in chunk.spans))
    if all(isinstance(number, int) and 0 <= number < 256 for number in value):
        blobs.extend(value)
        return Binary((Span(len(blobs) - len(value), len(value)),))
    return value
