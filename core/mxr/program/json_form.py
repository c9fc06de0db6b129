"""Programs saved as JSON: the same tree, with every binary written as `{"bytes":[...]}`.

MIGraphX 2.16 writes this form for save(..., format="json"). It is read whole, so its size is bounded. A plain array of
bytes in a binary's place is taken too.
"""

from __future__ import annotations

import json
import re

from mxr.errors import Damaged
from mxr.program.source import BytesSource, Source, Span
from mxr.program.tokens import Binary, damaged

LARGEST = 32 << 20
"""Bytes of the largest JSON save that is read."""
MOST_MEMORY = 160 << 20
"""Bytes that its tree may take, as estimated from its punctuation."""

_BYTE_RUN = re.compile(rb"\[\s*+(?:\d{1,3}+\s*+,\s*+){63,}+\d{1,3}+\s*+\]")
_BINARY_KEYS = ("data", "code_object", "solution_object")
_BINARY = {"bytes"}
_MARK = "mxr binary "


def is_json(source: Source) -> bool:
    """Does the source begin like a JSON object? No MessagePack map does."""
    return source.read_at(0, 256).lstrip()[:1] == b"{"


def load(source: Source) -> tuple[dict[str, object], BytesSource]:
    """The program's tree, and the source in which its binaries' spans lie.

    Raises `Damaged` where it is no JSON, or too large to be read within bounds.
    """
    if source.size > LARGEST:
        raise Damaged(
            f"A JSON save of {source.size} bytes is too large to read.",
            hint="Save the program in MessagePack form: migraphx.save(program, path).",
            detail={"offset": 0},
        )
    blobs = bytearray()
    text = _fold_binaries(source.read_at(0, source.size), blobs)
    _check_memory(text)
    tree = _parse(text, blobs)
    if not isinstance(tree, dict):
        raise damaged("There should be a JSON object", 0)
    return tree, BytesSource(bytes(blobs))


def _fold_binaries(text: bytes, blobs: bytearray) -> bytes:
    """Put a mark in the place of each long array of bytes, padded so that offsets in the text stay as they are."""

    def fold(match: re.Match[bytes]) -> bytes:
        start = len(blobs)
        try:
            for piece in _slices(match.group()[1:-1]):
                blobs.extend(map(int, piece.split(b",")))
        except ValueError:  # numbers above 255: sizes, not bytes
            del blobs[start:]
            return match.group()
        return f'"{_MARK}{start}:{len(blobs) - start}"'.encode().ljust(len(match.group()))

    return _BYTE_RUN.sub(fold, text)


def _slices(numbers: bytes, length: int = 1 << 16) -> list[bytes]:
    """The text in pieces that end before a comma, so that no list of all its numbers is ever made."""
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
    if 250 * containers + 32 * text.count(b'"') + 36 * text.count(b",") + widest * len(text) > MOST_MEMORY:
        raise damaged("A JSON save with more values than any program has", 0)


def _parse(text: bytes, blobs: bytearray) -> object:
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, blobs))
    except json.JSONDecodeError as error:
        raise damaged(f"No valid JSON: {error.msg}", len(error.doc[: error.pos].encode())) from error
    except UnicodeDecodeError as error:
        raise damaged("No valid JSON: the text is not UTF-8", error.start) from error
    except (ValueError, RecursionError) as error:
        raise damaged("No valid JSON: a number or a nesting beyond all bounds", 0) from error


def _object(pairs: list[tuple[str, object]], blobs: bytearray) -> object:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise damaged("A JSON object names a key twice", 0)
    if found.keys() == _BINARY:
        return _binary(found["bytes"], blobs)
    for key in _BINARY_KEYS:
        if key in found:
            found[key] = _binary(found[key], blobs)
    return found


def _binary(value: object, blobs: bytearray) -> object:
    """The binary that a value stands for, or the value itself where it stands for none."""
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
