"""Run the benchmarks one after another, each in its own process. Each prints its figures and their limits.

python bench/run.py [NAME ...]     (fetch, hashing, reader, resolve, ...; default: all)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run the named benchmarks, or all."""
    names = sys.argv[1:] or sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    # Let programs cache bytecode, as installed ones do; otherwise every measurement includes compiling the sources.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for name in names:
        print(f"\n== {name}", flush=True)
        subprocess.run([sys.executable, str(HERE / f"bench_{name}.py")], check=True, env=environ)


if __name__ == "__main__":
    main()
