"""Fuzzes the reader with mutations of real programs, and stops at the first failure.

    python tests/core/program/fuzz.py --minutes 10 [--seed N] [--keep DIR]

A mutation passes if every read function returns or raises `DamagedError` with an offset within the file, takes less
than 2 s per 5 MB, and the process stays below 256 MiB. A mutation that fails is written to --keep.
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

from core.program import program_maker as make
from core.program.mutations import bombs, mutate

from mxr.errors import DamagedError
from mxr.program import BytesSource, cut_points, describe, read_header

MAX_BYTES = 5_000_000
MAX_SECONDS = 2.0
MAX_MIB = 256


def samples() -> list[bytes]:
    """All programs under tests/data, and a program for each code object there."""
    codes = [path.read_bytes() for path in sorted((make.DATA / "hsaco").iterdir())]
    programs = [path.read_bytes() for path in sorted(make.DATA.glob("mxr_*/*.mxr"))]
    programs += [make.program(make.add_relu(code=code)) for code in codes]
    programs += [make.program(make.add_relu(code=code), version=5) for code in codes[:2]]
    programs += [make.as_json(program) for program in programs if len(program) < 30_000]
    return programs


def read_all(data: bytes, seen: Counter[str]) -> float:
    """Read `data` with every read function; return the seconds of the slowest."""
    slowest = 0.0
    for read in (describe, read_header, cut_points):
        start = time.process_time()
        try:
            read(BytesSource(data))
            seen[f"{read.__name__} ok"] += 1
        except DamagedError as error:
            seen[f"{read.__name__} damaged"] += 1
            if not 0 <= error.context["offset"] <= len(data):
                raise AssertionError(f"offset {error.context['offset']} of {len(data)} bytes") from error
        slowest = max(slowest, time.process_time() - start)
    return slowest


def peak_mib() -> float:
    """Peak memory of the process since `reset_peak`, or since its start."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def reset_peak() -> None:
    """Measure the peak memory from now on. Source: Linux's Documentation/filesystems/proc.rst, clear_refs."""
    Path("/proc/self/clear_refs").write_text("5")


def read_bombs(seen: Counter[str]) -> None:
    """Read each 5 MB bomb in a forked process of its own."""
    for name, data in bombs(MAX_BYTES).items():
        child = os.fork()
        if child == 0:
            reset_peak()
            before = peak_mib()
            seconds = read_all(data, seen)
            more = peak_mib() - before
            sys.stdout.write(f"bomb {name!r}, {len(data)} bytes: {seconds:.2f} s, {more:.0f} MiB more\n")
            sys.stdout.flush()
            os._exit(seconds > MAX_SECONDS or more > MAX_MIB)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"failed: bomb {name!r}")


def main() -> None:
    """Run the fuzzer; exit with 0 if nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"))
    arguments = parser.parse_args()
    read_bombs(Counter())
    reset_peak()
    corpus = samples()
    chance = random.Random(arguments.seed)
    seen: Counter[str] = Counter()
    end, worst, count = time.monotonic() + 60 * arguments.minutes, 0.0, 0
    while time.monotonic() < end:
        state = chance.getrandbits(64)
        data = mutate(chance.choice(corpus), corpus, random.Random(state))[:MAX_BYTES]
        if chance.random() < 0.05:
            corpus[chance.randrange(len(corpus))] = data[: 1 << 20] or b"\x80"
        if chance.random() < 0.001:
            corpus = samples()
        try:
            seconds = read_all(data, seen)
            allowed = max(0.3, MAX_SECONDS * len(data) / MAX_BYTES)
            worst = max(worst, seconds / allowed)
            if seconds > allowed or peak_mib() > MAX_MIB:
                raise AssertionError(f"{seconds:.2f} s for {len(data)} bytes, {peak_mib():.0f} MiB")
        except Exception:
            arguments.keep.mkdir(exist_ok=True)
            path = arguments.keep / f"{state:016x}.mxr"
            path.write_bytes(data)
            traceback.print_exc()
            sys.exit(f"failed: {path}")
        count += 1
    sys.stdout.write(
        f"{count} mutations passed; {dict(seen)}; slowest {worst:.2f} of the limit; peak {peak_mib():.0f} MiB\n"
    )


if __name__ == "__main__":
    main()
