"""Fuzzes the reader: mutates real programs for some minutes, and stops at the first that is not survived.

    python tests/core/program/fuzz.py --minutes 10 [--seed N] [--keep DIR]

A mutation is survived when each way of reading it returns or raises `Damaged` with an offset within the file, takes
less than 2 s per 5 MB, and the process stays below 256 MiB. What is not survived is written to --keep.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import program_maker as make
from mutations import bombs, mutate

from mxr.errors import Damaged
from mxr.program import BytesSource, cut_points, describe, read_header

MOST_BYTES = 5_000_000
MOST_SECONDS = 2.0
MOST_MIB = 256


def samples() -> list[bytes]:
    """Every program and code object under tests/data, and a program around each code object."""
    codes = [path.read_bytes() for path in sorted((make.DATA / "hsaco").iterdir())]
    programs = [path.read_bytes() for path in sorted(make.DATA.glob("mxr_*/*.mxr"))]
    programs += [make.program(make.add_relu(code=code)) for code in codes]
    programs += [make.program(make.add_relu(code=code), version=5) for code in codes[:2]]
    programs += [make.as_json(program) for program in programs if len(program) < 30_000]
    return programs


def read_all(data: bytes, seen: Counter[str]) -> float:
    """Read `data` in every way: the seconds that the slowest took."""
    slowest = 0.0
    for read in (describe, read_header, cut_points):
        start = time.process_time()
        try:
            read(BytesSource(data))
            seen[f"{read.__name__} ok"] += 1
        except Damaged as error:
            seen[f"{read.__name__} damaged"] += 1
            if not 0 <= error.detail["offset"] <= len(data):
                raise AssertionError(f"offset {error.detail['offset']} of {len(data)} bytes") from error
        slowest = max(slowest, time.process_time() - start)
    return slowest


def peak_mib() -> float:
    """The most memory that the process had since `forget_peak`, or ever."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def forget_peak() -> None:
    """Count the peak of memory from here on. Source: Linux's Documentation/filesystems/proc.rst, clear_refs."""
    Path("/proc/self/clear_refs").write_text("5")


def explode(seen: Counter[str]) -> None:
    """Read each of the five-megabyte bombs, in a process of its own that starts as this one is."""
    for name, data in bombs(MOST_BYTES).items():
        child = os.fork()
        if child == 0:
            forget_peak()
            before = peak_mib()
            seconds = read_all(data, seen)
            more = peak_mib() - before
            sys.stdout.write(f"bomb of {name}, {len(data)} bytes: {seconds:.2f} s, {more:.0f} MiB more\n")
            sys.stdout.flush()
            os._exit(seconds > MOST_SECONDS or more > MOST_MIB)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"not survived: the bomb of {name}")


def main() -> None:
    """Exit with 0 when all was survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"))
    arguments = parser.parse_args()
    explode(Counter())
    forget_peak()
    corpus = samples()
    chance = random.Random(arguments.seed)
    seen: Counter[str] = Counter()
    end, worst, count = time.monotonic() + 60 * arguments.minutes, 0.0, 0
    while time.monotonic() < end:
        state = chance.getrandbits(64)
        data = mutate(chance.choice(corpus), corpus, random.Random(state))[:MOST_BYTES]
        if chance.random() < 0.05:
            corpus[chance.randrange(len(corpus))] = data[: 1 << 20] or b"\x80"
        if chance.random() < 0.001:
            corpus = samples()
        try:
            seconds = read_all(data, seen)
            allowed = max(0.3, MOST_SECONDS * len(data) / MOST_BYTES)
            worst = max(worst, seconds / allowed)
            if seconds > allowed or peak_mib() > MOST_MIB:
                raise AssertionError(f"{seconds:.2f} s for {len(data)} bytes, {peak_mib():.0f} MiB")
        except Exception:
            arguments.keep.mkdir(exist_ok=True)
            path = arguments.keep / f"{state:016x}.mxr"
            path.write_bytes(data)
            traceback.print_exc()
            sys.exit(f"not survived: {path}")
        count += 1
    sys.stdout.write(
        f"{count} mutations survived; {dict(seen)}; slowest {worst:.2f} of what is allowed; {peak_mib():.0f} MiB\n"
    )


if __name__ == "__main__":
    main()
