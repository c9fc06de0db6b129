"""How fast a 2 GiB model is hashed: against a plain loop through xxh3_128 in the same run, with memory and the memo.

Run `python bench/bench_hashing.py [--gib N] [--folder DIR]`; the last line is one JSON document. The file must fit into
the page cache, else it is the disk that is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import xxhash

from mxr.util.hashing import UNSETTLED_NS, StatMemo, hash_model, model_hash, model_hash_memoised

BLOCK = 4 << 20
ROUNDS = 3
# VmHWM and not ru_maxrss: the latter begins, across fork and exec, with what the parent had.
RSS_PROBE = """
import re, sys
from pathlib import Path
from mxr.util.hashing import model_hash
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
before = peak()
model_hash(Path(sys.argv[1]), ())
print(peak() - before)
"""


def write_model(path: Path, gib: int) -> None:
    """A file of random bytes: one random block, turned by a few bytes for each place, so that writing it is quick."""
    block = os.urandom(BLOCK)
    with path.open("wb") as file:
        for turn in range(gib * (1 << 30) // BLOCK):
            file.write(block[turn:] + block[:turn])


def plain_loop(path: Path) -> str:
    """What anybody would write: read 4 MiB, hash 4 MiB."""
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return "xxh3:" + digest.hexdigest()


def plain_readinto(path: Path) -> str:
    """The same with one buffer, the fastest plain loop we know of."""
    digest, buffer = xxhash.xxh3_128(), memoryview(bytearray(BLOCK))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            digest.update(buffer[:size])
    return "xxh3:" + digest.hexdigest()


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternate(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median time of each, taken in turns so that a busy moment of the machine hits them alike."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            taken[name].append(seconds(work))
    return {name: statistics.median(times) for name, times in taken.items()}


def memo_times(model: Path, folder: Path) -> tuple[float, float]:
    """Seconds of the first and of the second hash with a memo, once the file is old enough to be trusted."""
    time.sleep(max(0.0, UNSETTLED_NS / 1e9 + 0.1 - (time.time() - model.stat().st_ctime)))
    memo = StatMemo(folder)
    first = seconds(lambda: model_hash_memoised(model, (), memo))
    return first, seconds(lambda: model_hash_memoised(model, (), memo))


def measure(folder: Path, gib: int) -> dict[str, float]:
    """All figures for one file in `folder`."""
    model = folder / "model.onnx"
    write_model(model, gib)
    if not plain_loop(model) == plain_readinto(model) == model_hash(model, ()):
        raise SystemExit("the loops disagree: nothing was measured")
    times = alternate(
        {
            "plain": lambda: plain_loop(model),
            "readinto": lambda: plain_readinto(model),
            "mxr": lambda: model_hash(model, ()),
        }
    )
    growth = subprocess.run(
        [sys.executable, "-c", RSS_PROBE, str(model)], check=True, capture_output=True, text=True
    ).stdout
    first, second = memo_times(model, folder / "memo")
    return {
        "gib": gib,
        "mxr_gb_per_s": model.stat().st_size / times["mxr"] / 1e9,
        "speed_of_plain_loop": times["plain"] / times["mxr"],
        "speed_of_readinto_loop": times["readinto"] / times["mxr"],
        "with_sha256_gb_per_s": model.stat().st_size / seconds(lambda: hash_model(model, (), with_sha256=True)) / 1e9,
        "rss_growth_mib": float(growth),
        "memo_first_s": first,
        "memo_second_s": second,
    }


def main() -> None:
    """Measure, print, and fail when a bound of the project is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        figures = measure(Path(folder), asked.gib)
    print(json.dumps({name: round(figure, 5) for name, figure in figures.items()}))
    if figures["speed_of_readinto_loop"] < 0.85 or figures["rss_growth_mib"] >= 64:
        raise SystemExit("too slow or too large: bounds are 0.85 of the plain loop and 64 MiB")


if __name__ == "__main__":
    main()
