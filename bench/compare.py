"""What mxr does, beside what people would use instead, on the same bytes and in the same run: one table.

    python bench/compare.py [--rounds 5] [--mib 512] [--write] [--tiny]

Each pair runs alternately on the same cores, after earlier writes are flushed. The ratio is the median of the ratios of
the pairs, with the smallest and the largest; below 1, mxr is faster. `--write` puts the table into bench/README.md;
without it, each ratio is shown beside the one there. The S3 server is OpenStack Swift, started and stopped here.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import peers
import psycopg
import urllib3
from bench_fetch import ASKED, MODEL, mxr, nginx, write_program
from bench_postgresql import filled
from bench_resolve import JSON, empty_endpoint, fill, request, throughput
from bench_s3 import bucket, timed
from peers import PROGRAM, Command, MakePeer, Peer
from registry_process import authorization, registry, variable
from servers.postgresql import PostgreSQL

from mxr.util.codec import canonical
from mxr_registry.database import schema
from mxr_registry.database.session import Database

README = Path(__file__).resolve().parent / "README.md"
BEGIN, END = "<!-- table -->", "<!-- end of the table -->"
PUSH = ("--model", str(MODEL), "--for", "python", "--precision", "fp32")


@dataclass(frozen=True)
class Row:
    """One comparison. `ours`, `theirs`: texts of the medians. `ratios`: of the pairs; below 1, mxr is better."""

    what: str
    ours: str
    peer: str
    theirs: str
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def line(self) -> str:
        """The row of the table."""
        spread = f"{self.ratio:.2f} ({min(self.ratios):.2f} - {max(self.ratios):.2f})"
        return f"| {self.what} | {self.ours} | {self.peer} | {self.theirs} | {spread} |"


def row(what: str, peer: str, pairs: list[tuple[float, float]]) -> Row:
    """The row of pairs of seconds."""
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(what, seconds(ours), peer, seconds(theirs), tuple(one / other for one, other in pairs))


def seconds(value: float) -> str:
    """Seconds or milliseconds as a text."""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.{0 if value >= 0.01 else 2}f} ms"


def shell(command: str, environ: dict[str, str]) -> None:
    """Run a command of the shell."""
    subprocess.run(command, shell=True, check=True, env=environ, stdout=subprocess.DEVNULL)


def alternately(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int, clean: Callable[[], object] = lambda: None
) -> list[tuple[float, float]]:
    """The seconds of both, in turn. `clean` runs before each."""
    pairs = []
    for number in range(rounds + 1):
        clean()
        one = timed(ours)
        clean()
        pair = (one, timed(theirs))
        # The first pair fills page caches and bytecode caches.
        pairs += [pair] if number else []
    return pairs


@contextmanager
def plain_server(folder: Path, url: str, program: Path) -> Iterator[tuple[str, str]]:
    """The words with which curl finds the program, and who serves it: nginx, or the registry."""
    if shutil.which("nginx"):
        with nginx(folder) as root:
            yield f"{root}/{program.name}", "nginx"
        return
    sent = authorization(url)
    listed = json.loads(urllib3.request("GET", f"{url}/v1/artifacts?limit=1", headers=sent).data)
    (folder / "header").write_text(f"Authorization: {sent['authorization']}\n")
    found = f"{url}/v1/artifacts/{listed['items'][0]['id']}/files/model.mxr"
    yield f"-H @{folder / 'header'} {found}", "the registry"


def from_disk(folder: Path, environ: dict[str, str], mib: int, rounds: int) -> Iterator[Row]:
    """Fetches from a registry with a local store, and from the cache."""
    program, cache, copy = folder / "program.mxr", folder / "fetched", folder / "copy.mxr"
    write_program(program, mib)
    mxr(environ, "push", str(program), *PUSH)
    environ = environ | {"MXR_CACHE_DIR": str(cache)}

    def clean() -> None:
        shutil.rmtree(cache, ignore_errors=True)
        copy.unlink(missing_ok=True)

    with plain_server(folder, environ["MXR_REGISTRY"], program) as (url, server):
        curl = f"curl -s --fail -o {copy} {url} && sha256sum {copy}"
        pairs = alternately(
            lambda: mxr(environ, "fetch", str(MODEL), *ASKED), lambda: shell(curl, environ), rounds, clean
        )
    yield row(f"fetch {mib} MiB from a registry's disk, verified and synced", f"curl from {server}, sha256sum", pairs)
    mxr(environ, "fetch", str(MODEL), *ASKED)
    pairs = alternately(
        lambda: mxr(environ, "fetch", str(MODEL), *ASKED),
        lambda: subprocess.run([sys.executable, "-c", "import click, xxhash"], check=True, env=environ),
        rounds * 4,
    )
    yield row(f"fetch {mib} MiB from the cache", 'python -c "import click, xxhash"', pairs)


def from_s3(folder: Path, mib: int, rounds: int, others: Sequence[MakePeer]) -> Iterator[Row]:
    """Publications to a registry with an S3 store, fetches from it, and fetches of what is there already."""
    cache, placed = folder / "s3-cache", folder / "placed.mxr"
    with bucket(folder) as found, registry(folder / "s3-data", found.environ) as url:
        environ = base(folder) | found.environ | {"AWS_DEFAULT_REGION": "us-east-1"}
        environ |= {
            "MXR_REGISTRY": url,
            "MXR_CACHE_DIR": str(folder / "publisher"),
            "DVC_NO_ANALYTICS": "1",
        } | variable(url)
        # DVC refuses /dev/null. The home folder has no such file.
        environ.pop("AWS_CONFIG_FILE", None)
        peers = [make(folder, found.endpoint, found.name) for make in others]
        publishing = [peer.put for peer in peers if peer.put]
        for put, pairs in publications(folder / PROGRAM, environ, mib, rounds, publishing):
            yield row(f"publish {mib} MiB to S3", put.name, pairs)
        environ["MXR_CACHE_DIR"] = str(cache)

        def fetch(*words: str) -> None:
            mxr(environ, "fetch", str(MODEL), *ASKED, *words)

        for number, peer in enumerate(peers):

            def clean(peer: Peer = peer) -> None:
                for path in (cache, placed, *peer.fetched):
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)

            get = partial(shell, peer.get.line, environ)
            pairs = alternately(fetch, get, rounds, clean)
            yield row(f"fetch {mib} MiB from S3, verified and synced", peer.get.name, pairs)
            if not number:
                pairs = alternately(lambda: fetch("-o", str(placed)), get, rounds, clean)
                yield row(f"the same with `-o FILE`: {mib} MiB twice on disk", peer.get.name, pairs)
            if peer.again:
                pairs = alternately(fetch, partial(shell, peer.again.line, environ), rounds)
                yield row(f"fetch {mib} MiB that are there already", peer.again.name, pairs)


def publications(
    program: Path, environ: dict[str, str], mib: int, rounds: int, others: Sequence[Command]
) -> Iterator[tuple[Command, list[tuple[float, float]]]]:
    """The seconds of mxr and of each peer. Each round is of other bytes: what is there already is not sent again."""
    times: list[list[tuple[float, float]]] = [[] for _ in others]
    for number in range(rounds + 1):
        write_program(program, mib)
        ours = timed(lambda: mxr(environ, "push", str(program), *PUSH))
        for other, pairs in zip(others, times, strict=True):
            pair = (ours, timed(partial(shell, other.line, environ)))
            pairs += [pair] if number else []
    yield from zip(others, times, strict=True)


def resolves(folder: Path, rounds: int, window: int) -> Iterator[Row]:
    """Hits per second, beside an endpoint that does nothing. `window`: seconds of each measurement."""
    data = folder / "few"
    data.mkdir()
    db = Database(f"sqlite:///{data / 'registry.db'}")
    schema.upgrade(db)
    fill(db, data, 200, 1)
    db.close()
    bodies = [canonical(request(number).to_json()).encode() for number in range(200)]
    with empty_endpoint() as empty, registry(data) as url:
        pairs = [
            (
                throughput(f"{url}/v1/resolve", "POST", bodies, window),
                throughput(f"{empty}/empty", "GET", [b""], window),
            )
            for _ in range(rounds)
        ]
    yield rates("resolve that hits", "an empty endpoint", pairs)


def resolves_on_postgresql(folder: Path, rounds: int, window: int) -> Iterator[Row]:
    """Hits on PostgreSQL: per second beside an endpoint that does nothing, and alone beside a query for one row."""
    server = PostgreSQL()
    try:
        with filled(server, folder / "fill", 1_000, 1) as database:
            bodies = [canonical(request(number).to_json()).encode() for number in range(200)]
            with (
                empty_endpoint() as empty,
                registry(folder / "postgresql", {"MXR_DATABASE_URL": database}) as url,
                psycopg.connect(database, autocommit=True) as session,
            ):
                pairs = [
                    (
                        throughput(f"{url}/v1/resolve", "POST", bodies, window),
                        throughput(f"{empty}/empty", "GET", [b""], window),
                    )
                    for _ in range(rounds)
                ]
                yield rates("resolve that hits, on PostgreSQL", "an empty endpoint", pairs)
                connection = http.client.HTTPConnection(url.removeprefix("http://"))
                ids = [row[0] for row in session.execute("SELECT id FROM artifacts LIMIT 200")]

                def resolve_each() -> None:
                    for body in bodies:
                        connection.request("POST", "/v1/resolve", body, JSON | authorization(url))
                        assert b'"artifact"' in connection.getresponse().read()

                def query_each() -> None:
                    for id in ids:
                        session.execute("SELECT manifest_json FROM artifacts WHERE id = %s", (id,)).fetchone()

                times = [(one / len(bodies), two / len(ids)) for one, two in alternately(resolve_each, query_each, 5)]
                yield row("the same by one client", "SELECT of one row by psycopg", times)
    finally:
        server.remove()


def rates(what: str, peer: str, pairs: list[tuple[float, float]]) -> Row:
    """The row of pairs of requests per second."""
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Row(what, f"{ours:.0f}/s", peer, f"{theirs:.0f}/s", tuple(other / one for one, other in pairs))


def base(folder: Path) -> dict[str, str]:
    """The environment of the programs: installed ones cache their bytecode."""
    found = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return found | {"HOME": str(folder)}


def measure(mib: int, rounds: int, window: int, others: Sequence[MakePeer]) -> Iterator[Row]:
    """All rows, one after the other."""
    with tempfile.TemporaryDirectory(prefix="mxr-bench-") as name:
        folder = Path(name)
        # As root, nginx drops its privileges and reads the folder as another user.
        folder.chmod(0o755)
        with registry(folder / "data") as url:
            environ = base(folder) | {"MXR_REGISTRY": url, "MXR_CACHE_DIR": str(folder / "publisher")} | variable(url)
            yield from from_disk(folder, environ, mib, rounds)
        yield from from_s3(folder, mib, rounds, others)
        yield from resolves(folder, rounds, window)
        yield from resolves_on_postgresql(folder, rounds, window)


def machine() -> str:
    """What ran the table."""
    names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}"
    return (
        f"{cores}, {memory:.0f} GiB, Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}"
    )


def recorded() -> dict[tuple[str, str], float]:
    """The ratios in bench/README.md, by what was measured and its peer."""
    found = re.findall(r"^\| ([^|]+) \|[^|]+\| ([^|]+) \|[^|]+\| ([0-9.]+) \(", README.read_text(), re.MULTILINE)
    return {(what, peer): float(ratio) for what, peer, ratio in found}


def main() -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--write", action="store_true", help="put the table into bench/README.md")
    parser.add_argument("--tiny", action="store_true", help="one round of 8 MiB beside boto3, without meaning")
    options = parser.parse_args()
    mib, rounds, window = (8, 1, 1) if options.tiny else (options.mib, options.rounds, 4)
    before = recorded()
    rows = []
    begun = time.monotonic()
    others = (peers.boto3,) if options.tiny else (peers.aws, peers.dvc, peers.mlflow)
    for each in measure(mib, rounds, window, others):
        known = before.get((each.what, each.peer))
        print(each.line + ("" if options.write or known is None else f" in bench/README.md: {known:.2f}"), flush=True)
        rows.append(each)
    if options.write:
        today, seconds = datetime.now(timezone.utc), time.monotonic() - begun
        head = f"{today:%Y-%m-%d}, {machine()}; {rounds} pairs each, {seconds:.0f} s."
        table = [
            "| what | mxr | instead | takes | ratio (spread) |",
            "|---|---|---|---|---|",
            *(each.line for each in rows),
        ]
        text = README.read_text()
        first, last = text.index(BEGIN) + len(BEGIN), text.index(END)
        README.write_text("\n".join([text[:first], "", head, "", *table, "", text[last:]]))


if __name__ == "__main__":
    main()
