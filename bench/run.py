"""`make bench`: every bench in turn, each a process of its own; what each prints says the bound that it must keep.

python bench/run.py [NAME ...]     (fetch, hashing, reader, resolve, ...; default: all)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Runs the benches named, or all."""
    names = sys.argv[1:] or sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    # An installed program has its bytecode; one that must compile it anew at each start would be measured for that.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for name in names:
        print(f"\n== {name}", flush=True)
        subprocess.run([sys.executable, str(HERE / f"bench_{name}.py")], check=True, env=environ)


if __name__ == "__main__":
    main()
