"""Time and extra memory of the program reader on generated files, compared with their limits.

    python bench/bench_reader.py [--repeat N] [--folder DIR]

Each task runs in its own process, so that its memory can be measured. The best of N runs is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from core.program import program_maker as make  # noqa: E402

MIB = 1 << 20

CHILD = """
import sys, time
from mxr.program import {names}

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

path = sys.argv[1]
before = peak()
start, start_cpu = time.perf_counter(), time.process_time()
{task}
took, cpu = time.perf_counter() - start, time.process_time() - start_cpu
print(took, cpu, (peak() - before) / 1024)
"""

TASKS = {
    "header": ("FileSource, read_header", "with FileSource(path) as source: read_header(source)"),
    "describe": ("describe_file", "describe_file(path)"),
    "cut points": ("FileSource, cut_points", "with FileSource(path) as source: cut_points(source)"),
}


def write_weights(path: Path, count: int, each: int) -> None:
    """Write a program of `count` literals with `each` bytes. The weights are holes in a sparse file."""
    form = make.shape("float", each // 4)
    mark = b"\xc4\x07WEIGHTS"
    nodes = [make.literal(f"@{n}", form, make.Raw(b"\x91" + mark)) for n in range(count)]
    text = make.program([*nodes, *make.add_relu(code=make.hsaco("gfx1100.cov5.hsaco"))])
    with path.open("wb") as file:
        *before, last = text.split(mark)
        for part in before:
            file.write(part + make.bin_head(each))
            file.seek(each, os.SEEK_CUR)
        file.write(last)


def write_kernels(path: Path, count: int) -> None:
    """Write a program of `count` kernels with distinct shapes and bytes."""
    code = make.hsaco("gfx90a_sramecc+_xnack-.cov5.hsaco")
    nodes = []
    for n in range(count):
        form = make.shape("float", 4, 64, 1 + n % 256, 32)
        nodes.append(
            make.code_object(f"@{n}", form, make.Chunks([code + n.to_bytes(4, "big")]), [f"@{n - 1}"], f"mlir_dot_{n}")
        )
    path.write_bytes(make.program([make.param("x", make.shape("float", 4)), *nodes]))


def measure(path: Path, task: str, repeat: int) -> tuple[float, float, float]:
    """Wall-clock seconds, processor seconds (fewer on a busy machine) and MiB; each from its best run."""
    names, line = TASKS[task]
    runs = []
    for _ in range(repeat):
        command = [sys.executable, "-c", CHILD.format(names=names, task=line), str(path)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        runs.append(tuple(map(float, text.split())))
    seconds, cpu, mib = (min(column) for column in zip(*runs, strict=True))
    return seconds, cpu, mib


def main() -> None:
    """Print a table; exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", help="folder for the generated files (sparse; less than 30 MiB on disk)")
    parser.add_argument("--kernels", type=int, default=5000)
    parser.add_argument("--no-limits", action="store_true", help="measure only")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        weights, kernels = Path(folder, "weights.mxr"), Path(folder, "kernels.mxr")
        write_weights(weights, 8, 64 * MIB)
        write_kernels(kernels, arguments.kernels)
        rows = [
            ("header of 512 MiB", weights, "header", 0.005, 32.0),
            ("describe 512 MiB of weights", weights, "describe", 0.060, 32.0),
            ("cut points of 512 MiB", weights, "cut points", 0.060, 32.0),
            (f"describe {arguments.kernels} code objects", kernels, "describe", 1.0, 32.0),
            (f"cut points of {arguments.kernels} code objects", kernels, "cut points", 1.0, 32.0),
        ]
        found: list[dict[str, Any]] = []
        for title, path, task, most_seconds, most_mib in rows:
            seconds, cpu, mib = measure(path, task, arguments.repeat)
            kept = seconds <= most_seconds and mib <= most_mib
            row: dict[str, Any] = {
                "what": title,
                "seconds": seconds,
                "cpu": cpu,
                "extra_mib": mib,
                "limit": most_seconds,
                "kept": kept,
            }
            found.append(row)
    if arguments.json:
        print(json.dumps(found))
    else:
        for row in found:
            state = "ok" if row["kept"] else "LIMIT EXCEEDED"
            print(f"{row['what']:34} {1000 * row['seconds']:8.1f} ms of {1000 * row['limit']:5.0f}", end="")
            print(f" ({1000 * row['cpu']:6.1f} ms CPU)", end="")
            print(f" {row['extra_mib']:6.1f} MiB extra  {state}")
    sys.exit(0 if arguments.no_limits or all(row["kept"] for row in found) else 1)


if __name__ == "__main__":
    main()
