"""Publish speed: `mxr push` to a registry with an S3 store, compared with `aws s3 cp` of the same file to that store.

    python bench/bench_publish.py [--mib 512] [--rounds 5] [--boto3]

The store is a real OpenStack Swift server. Client, registry and server share the machine's cores. `mxr push` also reads
the program, checks it against its key, hashes it and publishes it. The AWS command line is installed for it. The last
line is one JSON document, with the processor seconds of each process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import peers
from bench_fetch import MODEL, mxr, write_program
from bench_s3 import bucket, timed
from registry_process import registry_process, variable
from servers.faulty import Faulty

TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(parent: int) -> dict[int, float]:
    """The processor seconds of a process and of all that it started, by process id."""
    found, todo = {}, [parent]
    while todo:
        pid = todo.pop()
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            todo += [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            continue
        found[pid] = sum(map(int, fields[11:15])) / TICKS
    return found


def measure(folder: Path, mib: int, rounds: int, make_peer: peers.MakePeer) -> dict[str, Any]:
    """Publish and copy alternately; each publication is another file of the same size."""
    path = folder / peers.PROGRAM
    rows: list[tuple[float, float]] = []
    spent: list[dict[str, float]] = []
    with bucket(folder) as found, registry_process(folder / "data", found.environ) as server:
        environ = os.environ | found.environ | {"AWS_DEFAULT_REGION": "us-east-1", "HOME": str(folder)}
        environ |= {"MXR_REGISTRY": server.url, "MXR_CACHE_DIR": str(folder / "cache")} | variable(server.url)
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        copy = make_peer(folder, found.endpoint, found.name).put
        assert copy is not None
        for number in range(rounds + 1):
            write_program(path, 32 if number == 0 else mib)
            before = processor_seconds(os.getpid())
            mine = os.times()
            ours = timed(
                lambda: mxr(environ, "push", str(path), "--model", str(MODEL), "--for", "python", "--precision", "fp32")
            )
            after, now = processor_seconds(os.getpid()), os.times()
            used = {pid: seconds - before.get(pid, 0.0) for pid, seconds in after.items()}
            registry_seconds = used.pop(server.process.pid, 0.0)
            used.pop(os.getpid(), None)
            client = now.children_user + now.children_system - mine.children_user - mine.children_system
            theirs = timed(partial(subprocess.run, copy.line, shell=True, env=environ, check=True))
            if number:
                rows.append((ours, theirs))
                spent.append({"client": client, "registry": registry_seconds, "store": sum(used.values())})
    one, other = (statistics.median(side) for side in zip(*rows, strict=True))
    ratio = statistics.median(a / b for a, b in rows)
    processors = {name: round(statistics.median(each[name] for each in spent), 2) for name in spent[0]}
    print(f"publish {mib} MiB to S3: {one:.2f} s; {copy.name}: {other:.2f} s")
    print(f"  ratio {ratio:.2f} (goal 1.5); processor seconds: {processors}")
    return {"mib": mib, "publish": one, "copy": other, "ratio": ratio, "processors": processors}


def requests(folder: Path, mib: int) -> dict[str, int]:
    """The requests of S3 that one publication makes, by method."""
    path = folder / "program.mxr"
    write_program(path, mib)
    with bucket(folder) as found, Faulty(found.endpoint) as way:
        found.endpoint = way.url
        with registry_process(folder / "data", found.environ) as server:
            environ = os.environ | {"MXR_REGISTRY": server.url, "MXR_CACHE_DIR": str(folder / "cache")}
            environ |= variable(server.url)
            begun = len(way.seen)
            mxr(environ, "push", str(path), "--model", str(MODEL), "--for", "python", "--precision", "fp32")
            return dict(Counter(each.method for each in way.seen[begun:]))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--boto3", action="store_true", help="beside boto3, which needs no installation")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mxr-bench-") as name:
        (Path(name) / "count").mkdir()
        asked = requests(Path(name) / "count", options.mib)
        print(f"requests of S3 for one publication of {options.mib} MiB: {asked}")
        row = measure(Path(name), options.mib, options.rounds, peers.boto3 if options.boto3 else peers.aws)
    print(json.dumps(row | {"requests": asked}))


if __name__ == "__main__":
    main()
