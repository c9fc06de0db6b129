"""What the walls around a child cost: a child of a second with and without them, in turn.

    python bench/bench_walls.py [--seconds 1] [--rounds 10]

Each way is measured: Landlock, and the namespaces of bubblewrap where that is installed.

The child starts an interpreter, imports NumPy, multiplies matrices for so long, and writes a file, as a compile does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from mxr.sandbox.policy import policy_for
from mxr_workers.sandbox import ChildLimits, run_child

CHILD = """
import sys, time
import numpy
end, x = time.perf_counter() + SECONDS, numpy.ones((64, 64))
while time.perf_counter() < end:
    x = x @ x / 64
numpy.save("out.npy", x)
"""

NONE = "none"

LIMIT = 1.05
"""The most that a compile of a second may take, as a multiple of one without walls."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    program = shutil.which("bwrap")
    spent: dict[str, list[float]] = {NONE: [], "landlock": [], **({"namespaces": []} if program else {})}
    with tempfile.TemporaryDirectory() as folder:
        roots = [sys.prefix, sys.base_prefix, *filter(None, sys.path)]
        walls = policy_for(roots, [Path(folder)], 1 << 30).more(write=[folder])
        for _ in range(given.rounds):
            for way in spent:
                policy = replace(walls, bubblewrap=program or "" if way == "namespaces" else "")
                begun = time.perf_counter()
                argv = [sys.executable, "-c", CHILD.replace("SECONDS", str(given.seconds))]
                limits = ChildLimits(60, 4 << 30)
                environ = {"PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"}
                ending = run_child(argv, {}, Path(folder), environ, limits, walls=None if way == NONE else policy)
                if ending.code != 0:
                    raise SystemExit(f"the child ended with {ending.code}")
                spent[way].append(time.perf_counter() - begun)
    without = statistics.median(spent.pop(NONE))
    for way, times in spent.items():
        found = statistics.median(times)
        said = f"{found:.3f} s behind walls by {way}, {without:.3f} s without: {found / without:.3f}"
        print(f"a child of {given.seconds:g} s: {said}, {'within' if found / without <= LIMIT else 'BEYOND'} {LIMIT}")


if __name__ == "__main__":
    main()
