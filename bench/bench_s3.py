"""Download of a blob through a presigned URL with mxr's client, compared with boto3; from a real Swift server.

    python bench/bench_s3.py [--mib 256] [--rounds 7]

Both write the file to disk. In addition, mxr requests the URL from the registry, checks the sha256 and syncs the file.
Server, registry and client share the machine's cores. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import urllib3
from registry_process import authorization, registry, token_for

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from servers.swift import Bucket, Swift  # noqa: E402

from mxr.artifact.manifest import Blob, File  # noqa: E402
from mxr.client import transfer  # noqa: E402
from mxr.client.registry import Client  # noqa: E402
from mxr.settings import Settings  # noqa: E402

BOUND = 0.9


def timed(action: Callable[[], object]) -> float:
    """The seconds of one run, after earlier writes have been flushed."""
    os.sync()
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


@contextmanager
def bucket(folder: Path) -> Iterator[Bucket]:
    """A bucket on a real server."""
    (folder / "swift").mkdir()
    server = Swift(folder / "swift")
    try:
        yield server.bucket()
    finally:
        server.stop()


def measure(folder: Path, found: Bucket, client: Client, mib: int, rounds: int) -> dict[str, Any]:
    """Run both downloads alternately, and compare them pair by pair."""
    source, final = folder / "source", folder / "final"
    source.write_bytes(os.urandom(mib << 20))
    name = sha256(source.read_bytes()).hexdigest()
    file = File("blob", mib << 20, name, (Blob(name, mib << 20),))
    transfer.upload(client, source, file)
    pointed = urllib3.request(
        "GET", f"{client.url}/v1/blobs/{name}", redirect=False, retries=False, headers=authorization(client.url)
    )
    if not pointed.headers.get("location", "").startswith(found.endpoint):
        raise SystemExit("the registry did not redirect to a presigned URL")

    def ours() -> None:
        transfer.download(client, file, final)

    def theirs() -> None:
        found.client.download_file(found.name, found.key(name), str(final))

    pairs = []
    for number in range(rounds + 1):
        row = []
        for action in (ours, theirs):
            final.unlink(missing_ok=True)
            row.append(timed(action))
        # The first pair opens connections and fills the page cache.
        pairs += [row] if number else []
    one, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(theirs / ours for ours, theirs in pairs)
    print(f"{mib} MiB through a presigned URL: mxr {mib / one:.0f} MiB/s; boto3 {mib / other:.0f} MiB/s")
    print(f"  ratio {ratio:.2f} (limit: at least {BOUND})")
    return {"mib": mib, "mxr": one, "boto3": other, "ratio": ratio}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mxr-bench-") as name:
        folder = Path(name)
        with bucket(folder) as found, registry(folder / "data", found.environ) as url:
            client = Client(Settings(registry=url, token=token_for(url)))
            print(json.dumps(measure(folder, found, client, options.mib, options.rounds)))


if __name__ == "__main__":
    main()
