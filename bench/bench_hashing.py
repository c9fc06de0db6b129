"""Hashing a 2 GiB model, compared with sha256 in one thread; the quick check, compared with a plain loop over xxh3_128.

    python bench/bench_hashing.py [--mib 2048] [--folder DIR] [--no-limits]

The last line is one JSON document. The file must fit into the page cache; otherwise the disk is measured. On a machine
with other load, threads do not get a CPU each: `first_of_loops_at_once` compares with as many plain loops at the same
time instead.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import xxhash

from mxr.artifact.model_files import model_identity, threads
from mxr.util.hashing import UNSETTLED_NS, StatMemo, is_intact, sha256_memoised

BLOCK = 4 << 20
ROUNDS = 5
# VmHWM, not ru_maxrss: after fork and exec, ru_maxrss starts with the value of the parent.
RSS_PROBE = """
import re, sys
from pathlib import Path
from mxr.artifact.model_files import model_identity
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
before = peak()
model_identity(Path(sys.argv[1]), ())
print(peak() - before)
"""


def write_model(path: Path, mib: int) -> None:
    """Write a file of random bytes: one random block, rotated by a byte for each position, which is fast to write."""
    block = os.urandom(BLOCK)
    with path.open("wb") as file:
        for turn in range((mib << 20) // BLOCK):
            file.write(block[turn:] + block[:turn])


def plain_loop(path: Path, digest: hashlib._Hash | xxhash.xxh3_128) -> str:
    """One thread, one reused buffer: the fastest plain loop known."""
    buffer = memoryview(bytearray(BLOCK))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            digest.update(buffer[:size])
    return digest.hexdigest()


def at_once(path: Path, count: int) -> None:
    """That many plain loops over sha256 in as many threads, each over the whole file."""
    loops = [threading.Thread(target=plain_loop, args=(path, hashlib.sha256())) for _ in range(count)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()


def seconds(work: Callable[[], object]) -> float:
    """The wall-clock seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternate(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median time of each, run alternately so that other load affects them equally."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            taken[name].append(seconds(work))
    return {name: statistics.median(times) for name, times in taken.items()}


def settled(model: Path) -> None:
    """Wait until the file is old enough for the memo."""
    time.sleep(max(0.0, UNSETTLED_NS / 1e9 + 0.1 - (time.time() - model.stat().st_ctime)))


def measure(folder: Path, mib: int) -> dict[str, float]:
    """Measure all figures for one file in `folder`."""
    model, memo = folder / "model.onnx", StatMemo(folder / "memo")
    write_model(model, mib)
    settled(model)
    sha = sha256_memoised(model, memo)
    if sha != plain_loop(model, hashlib.sha256()) or not is_intact(model, sha, memo):
        raise SystemExit("the loops return different digests")
    times = alternate(
        {
            "sha256": lambda: plain_loop(model, hashlib.sha256()),
            "at_once": lambda: at_once(model, threads()),
            "first": lambda: model_identity(model, ()),
            "xxh3": lambda: plain_loop(model, xxhash.xxh3_128()),
            "quick": lambda: is_intact(model, sha, memo),
        }
    )
    growth = subprocess.run(
        [sys.executable, "-c", RSS_PROBE, str(model)], check=True, capture_output=True, text=True
    ).stdout
    model_identity(model, (), memo)
    return {
        "mib": mib,
        "threads": threads(),
        "first_of_threads_times_sha256": times["sha256"] / times["first"] / threads(),
        "first_of_loops_at_once": times["at_once"] / times["first"] / threads(),
        "quick_of_plain_xxh3": times["xxh3"] / times["quick"],
        "unchanged_of_first": seconds(lambda: model_identity(model, (), memo)) / times["first"],
        "rss_growth_mib": float(growth),
        "first_gb_per_s": model.stat().st_size / times["first"] / 1e9,
        "quick_gb_per_s": model.stat().st_size / times["quick"] / 1e9,
    }


def main() -> None:
    """Measure and print; fail if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--no-limits", action="store_true", help="measure only")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        figures = measure(Path(folder), asked.mib)
    print(json.dumps({name: round(figure, 5) for name, figure in figures.items()}))
    kept = (
        figures["first_of_threads_times_sha256"] >= 0.9,
        figures["quick_of_plain_xxh3"] >= 0.8,
        figures["rss_growth_mib"] < 32,
    )
    if not (all(kept) or asked.no_limits):
        raise SystemExit(
            "limits exceeded: the first hash at least 0.9 of threads x sha256, the quick check at least 0.8 of a plain "
            "loop over xxh3_128, memory growth less than 32 MiB"
        )


if __name__ == "__main__":
    main()
