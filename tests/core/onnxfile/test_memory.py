"""Files that consist of as many messages as possible: refused or read with memory of a bounded size."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mxr.errors import DamagedError
from mxr.onnxfile import external, read_model
from mxr.onnxfile.external import MAX_LOCATIONS, MAX_OPERATORS
from mxr.onnxfile.graph import MAX_VALUES
from mxr.onnxfile.protobuf import MAX_PARTS
from mxr.onnxfile.writing import field, number_field

SIZE = 1 << 19
FEWER = 100_000


def graph(content: bytes) -> bytes:
    return field(7, content)


def repeated(part: bytes) -> bytes:
    return part * (SIZE // len(part))


def numbered(make: object, count: int) -> bytes:
    return b"".join(make(b"%06d" % number) for number in range(count))


def locations(count: int) -> bytes:
    return graph(numbered(lambda name: field(5, field(13, field(1, "location") + field(2, name))), count))


# Made when a test runs: every test process collects this module.
ATTACKS: dict[str, Callable[[], bytes]] = {
    "nodes": lambda: graph(repeated(field(1, b""))),
    "initializers": lambda: graph(repeated(field(5, b""))),
    "names of initializers": lambda: graph(numbered(lambda name: field(5, field(8, name)), SIZE // 5)),
    "inputs": lambda: graph(repeated(field(11, b""))),
    "outputs": lambda: graph(repeated(field(12, b""))),
    "graphs": lambda: repeated(field(7, b"")),
    "attributes": lambda: graph(field(1, repeated(field(5, b"")))),
    "parts of an attribute": lambda: graph(field(1, field(5, repeated(field(5, b""))))),
    "integers of an attribute": lambda: graph(field(1, field(5, repeated(b"\x18\x01")))),
    "numbers of types": lambda: graph(b"".join(field(5, number_field(2, number)) for number in range(SIZE // 8))),
    "operators": lambda: graph(numbered(lambda name: field(1, field(4, name)), SIZE // 10)),
    "names of a node": lambda: graph(field(1, repeated(field(4, b"")))),
    "external data": lambda: graph(field(5, repeated(field(13, b"")))),
    "locations": lambda: graph(
        numbered(lambda name: field(5, field(13, field(1, "location") + field(2, name))), SIZE // 30)
    ),
    "types of an input": lambda: graph(field(11, repeated(field(2, b"")))),
    "shapes of an input": lambda: graph(field(11, field(2, field(1, repeated(field(2, b"")))))),
    "dims of an input": lambda: graph(field(11, field(2, field(1, field(2, repeated(field(1, b""))))))),
}

PROBE = """
import os, re, resource, sys
from pathlib import Path
from mxr.errors import DamagedError
from mxr.onnxfile import read_model
from mxr.onnxfile.reader import structure_of
def peak(): return int(re.search(r"VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1]) * 1024
def measure(path):
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    before = peak()
    try:
        read_model(path, weight_dims=True)
    except DamagedError:
        pass
    structure_of(path.read_bytes())
    print(path.name, peak() - before, flush=True)
for path in sorted(Path(sys.argv[1]).iterdir()):
    # A process for each: what one has freed is no room for the next.
    child = os.fork()
    if not child:
        measure(path)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, path
"""


def test_memory_is_at_most_20_times_the_file(tmp_path: Path) -> None:
    for name, content in ATTACKS.items():
        (tmp_path / name.replace(" ", "-")).write_bytes(content())
    done = subprocess.run([sys.executable, "-c", PROBE, tmp_path], capture_output=True, text=True, check=True)
    taken = dict(line.split() for line in done.stdout.splitlines())
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert taken.keys() == sizes.keys()
    assert {name: size for name, size in taken.items() if int(size) >= 20 * sizes[name]} == {}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (lambda: graph(field(1, b"") * (FEWER + 1)), f"more than {FEWER} nodes"),
        (lambda: graph(field(11, b"") * (MAX_VALUES + 1)), f"more than {MAX_VALUES} inputs"),
        (lambda: graph(b"") * (MAX_PARTS + 1), f"more than {MAX_PARTS} parts"),
        (lambda: graph(numbered(lambda name: field(1, field(4, name)), MAX_OPERATORS + 1)), "different operators"),
        (
            lambda: graph(
                numbered(lambda name: field(5, field(13, field(1, "location") + field(2, name))), MAX_LOCATIONS + 1)
            ),
            "locations of external data",
        ),
    ],
)
def test_what_is_beyond_a_bound_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Callable[[], bytes], says: str
) -> None:
    # A million nodes take seconds.
    monkeypatch.setattr(external, "MAX_MESSAGES", FEWER)
    (tmp_path / "m.onnx").write_bytes(content())
    with pytest.raises(DamagedError, match=says):
        read_model(tmp_path / "m.onnx")
