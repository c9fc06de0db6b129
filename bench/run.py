"""Run the benchmarks one after another, each in its own process. Each prints its figures and their limits.

python bench/run.py [--tiny] [NAME ...]     (fetch, hashing, reader, resolve, ...; default: all)

`--tiny` runs each at its smallest size and without limits. The figures mean nothing; it shows that the benchmark fits
the code.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
TINY = {
    "attacks": "--seconds 1 --downloads 8 --watches 2 --jobs 4",
    "cuts": "--mib 2 --rounds 1 --weights small --no-limits",
    "fetch": "--mib 8 --rounds 1",
    "handover": "--rounds 1",
    "hashing": "--mib 16 --no-limits",
    "jobs": "--jobs 80 --kinds 4 --claims 8 --seconds 0.2 --waiting 30 --rounds 1",
    "pages": "--many 1000 --samples 3",
    "postgresql": "--many 1000 --samples 40 --seconds 1 --rounds 1",
    "publish": "--mib 4 --rounds 1 --boto3",
    "reader": "--kernels 20 --repeat 1 --no-limits --json",
    "resolve": "--many 1000 --samples 40 --seconds 1 --rounds 1",
    "s3": "--mib 4 --rounds 1",
    "sweep": "--rows 1000 --expired 100",
    "walls": "--seconds 0.1 --rounds 1",
}


def main() -> None:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*NAMES, []])
    given = parser.parse_args()
    # Let programs cache bytecode, as installed ones do; otherwise every measurement includes compiling the sources.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for name in given.names or NAMES:
        print(f"\n== {name}", flush=True)
        options = TINY[name].split() if given.tiny else []
        subprocess.run([sys.executable, str(HERE / f"bench_{name}.py"), *options], check=True, env=environ)


if __name__ == "__main__":
    main()
