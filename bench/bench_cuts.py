"""Cutting programs at their weights: the cost where nothing is shared, and the savings where weights are shared.

python bench/bench_cuts.py [--mib 512 1024] [--rounds N] [--folder DIR]

The baseline cuts the same file into pieces of 64 MiB. Compared are the stored bytes (manifest and blobs), the processor
time of `mxr.workflows.push.split_program`, and the time to upload everything to a registry on this machine, where a
request is most expensive relative to its bytes. The last line is one JSON document. Exits with 1 if the stored bytes
exceed the baseline by more than one percent; the times have no limit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import mxr.program
from mxr.artifact.manifest import File, Manifest
from mxr.client.registry import Client
from mxr.client.transfer import upload
from mxr.program.source import Source
from mxr.settings import Settings
from mxr.workflows.push import split_program

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from core.program import program_maker as make  # noqa: E402
from registry_process import registry, token_for  # noqa: E402

MIB, KIB = 1 << 20, 1 << 10
PLAIN = 64 * MIB
MAX_KEPT = 1.01
LAYERS = {
    "transformer": [4 * MIB] * 4 + [16 * MIB] * 2 + [4 * KIB] * 8,
    "convnet": [64 * KIB, 256 * KIB, KIB, 1 * MIB, KIB, 2304 * KIB, 2 * KIB],
    "small": [48 * KIB],
}
"""The sizes of the literals of one layer in bytes; layers repeat until the file has its size."""


def plain_points(source: Source) -> list[int]:
    """A cut every 64 MiB."""
    return [*range(0, source.size, PLAIN), source.size]


def write_program(path: Path, size: int, layer: list[int]) -> None:
    """Write a program of random, distinct literals: windows into a random block, moved by a prime number of bytes."""
    block = os.urandom(max(layer)) * 2
    mark = b"\xc4\x07WEIGHTS"
    sizes = layer * (size // sum(layer)) or layer
    form = make.shape("float", 1)
    nodes = [make.literal(f"@{n}", form, make.Raw(b"\x91" + mark)) for n in range(len(sizes))]
    *parts, last = make.program([make.param("x", form), *nodes]).split(mark)
    with path.open("wb") as file:
        for n, (part, each) in enumerate(zip(parts, sizes, strict=True)):
            at = n * 7919 % (len(block) // 2)
            window = block[at : at + each - 8] + n.to_bytes(8, "big")
            file.write(part + make.bin_head(len(window)) + window)
        file.write(last)


def plainly(path: Path) -> File:
    """Cut every 64 MiB, otherwise as `cut`."""
    with patch.object(mxr.program, "cut_points", plain_points, create=True):
        return split_program(path, "model.mxr")


def at_weights(path: Path) -> File:
    """Cut as `mxr push` does."""
    return split_program(path, "model.mxr")


def manifest_bytes(file: File) -> int:
    """The size of the manifest in bytes."""
    return len(json.dumps(Manifest((file,)).to_json(), separators=(",", ":")))


def seconds_of_cutting(path: Path, rounds: int) -> tuple[float, float, float]:
    """The best processor seconds of each method, and the median ratio of paired runs."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        for found, method in ((ours, at_weights), (theirs, plainly)):
            start = time.process_time()
            method(path)
            found.append(time.process_time() - start)
    return min(ours), min(theirs), statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def seconds_of_sending(path: Path, file: File, folder: Path) -> float:
    """The seconds to upload all blobs to an empty registry on this machine."""
    with tempfile.TemporaryDirectory(dir=folder) as data, registry(Path(data)) as url:
        client = Client(Settings(registry=url, token=token_for(url)))
        start = time.perf_counter()
        assert upload(client, path, file) == file.size
        return time.perf_counter() - start


def cost(name: str, mib: int, rounds: int, folder: Path) -> dict[str, object]:
    """Cut and upload one file with both methods."""
    path = folder / "program.mxr"
    write_program(path, mib * MIB, LAYERS[name])
    ours, theirs = at_weights(path), plainly(path)
    kept, plain = (file.size + manifest_bytes(file) for file in (ours, theirs))
    seconds, plain_seconds, ratio = seconds_of_cutting(path, rounds)
    sending, plain_sending = (min(seconds_of_sending(path, file, folder) for _ in range(2)) for file in (ours, theirs))
    path.unlink()
    row: dict[str, object] = {
        "weights": name,
        "mib": mib,
        "blobs": len(ours.blobs),
        "plain_blobs": len(theirs.blobs),
        "manifest_bytes": manifest_bytes(ours),
        "bytes_ratio": kept / plain,
        "cut_seconds": seconds,
        "plain_cut_seconds": plain_seconds,
        "cut_ratio": ratio,
        "send_seconds": sending,
        "plain_send_seconds": plain_sending,
        "kept": kept / plain <= MAX_KEPT,
    }
    print(f"{mib} MiB of {name} weights: {len(ours.blobs)} blobs; baseline: {len(theirs.blobs)}")
    print(
        f"  stored bytes: {kept / plain:.6f} of the baseline (limit {MAX_KEPT}); manifest: {manifest_bytes(ours)} bytes"
    )
    print(f"  cutting: {seconds:.2f} s; baseline: {plain_seconds:.2f} s; ratio {ratio:.4f}")
    print(f"  upload to an empty local registry: {sending:.2f} s; baseline: {plain_sending:.2f} s")
    return row


def families() -> Iterator[tuple[str, list[Path]]]:
    """Groups of programs of one model, saved by a real MIGraphX."""
    paths = [*(ROOT / "examples" / "ref").glob("*.mxr"), *(ROOT / "tests" / "data" / "mxr_real").glob("*.mxr")]
    names = {path: path.parent.name + "/" + path.name.partition(".")[0] for path in sorted(paths)}
    models = sorted({name.replace("-", "_").partition("_")[0] for name in names.values()})
    for model in models:
        members = [path for path, name in names.items() if name.startswith(model)]
        yield f"{model}: all", members
        for precision in ("fp32", "fp16"):
            yield f"{model}: {precision}", [path for path in members if precision in path.name]


def shared(paths: list[Path]) -> dict[str, object]:
    """The total size of the files, and of their distinct blobs."""
    files = [at_weights(path) for path in paths]
    blobs = {blob.sha256: blob.size for file in files for blob in file.blobs}
    total = sum(file.size for file in files)
    whole = sum({file.sha256: file.size for file in files}.values())
    return {"files": len(files), "bytes": total, "different_files_bytes": whole, "kept_bytes": sum(blobs.values())}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder", help="folder for the generated file and the registry; needs three times the largest size"
    )
    parser.add_argument("--weights", nargs="+", choices=list(LAYERS), default=list(LAYERS))
    parser.add_argument("--no-limits", action="store_true", help="measure only")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="mxr-bench-", dir=options.folder) as folder:
        for mib, name in itertools.product(options.mib, options.weights):
            rows.append(cost(name, mib, options.rounds, Path(folder)))
    sharing = {}
    for name, paths in families():
        if len(paths) > 1:
            sharing[name] = found = shared(paths)
            print(
                f"{name}: {found['files']} files, {found['bytes']} bytes; stored after cutting: {found['kept_bytes']}"
            )
    print(json.dumps({"bench": "cuts", "cost": rows, "sharing": sharing}))
    sys.exit(0 if options.no_limits or all(row["kept"] for row in rows) else 1)


if __name__ == "__main__":
    main()
