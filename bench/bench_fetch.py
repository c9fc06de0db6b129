"""Fetch speed: 1 GiB from a registry compared with curl and sha256sum; 100 MiB from the cache compared with an import.

And the same program from a registry that is files, behind nginx, compared with a registry's disk.

    python bench/bench_fetch.py [--mib 1024] [--rounds 5]

All data is in the page cache, and client and server share the machine's cores. Without curl or nginx the first part is
skipped with a message. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from registry_process import registry, variable

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from core.program import program_maker as make  # noqa: E402

BIN = Path(sys.executable).parent
MODEL = ROOT / "examples" / "models" / "convnet.onnx"
ASKED = ["--kind", "ref", "--migraphx", "2.15", "--batch", "1", "--for", "python"]


def write_program(path: Path, mib: int) -> None:
    """Write a valid program for the reference target with `mib` MiB of random weights in literals of 32 MiB."""
    each = 32 << 20
    form = make.shape("float", each // 4)
    mark = b"\xc4\x07WEIGHTS"
    literals = [make.literal(f"@{n}", form, make.Raw(b"\x91" + mark)) for n in range(-(-mib // 32))]
    nodes = [make.param("x", make.shape("float", 1, 3, 32, 32)), *literals]
    text = make.program(nodes, target="ref")
    with path.open("wb") as file:
        *before, last = text.split(mark)
        for part in before:
            file.write(part + make.bin_head(each) + os.urandom(each))
        file.write(last)


def timed(action: Callable[[], object]) -> float:
    """The seconds of one run."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def paired(first: Callable[[], object], second: Callable[[], object], rounds: int) -> tuple[float, float, float]:
    """Run both alternately. Returns both medians and the median of the pairwise ratios."""
    pairs = [(timed(first), timed(second)) for _ in range(rounds)]
    ones, others = zip(*pairs, strict=True)
    return statistics.median(ones), statistics.median(others), statistics.median(a / b for a, b in pairs)


def mxr(environ: dict[str, str], *words: str) -> None:
    """Run `mxr`."""
    subprocess.run(
        [str(BIN / "mxr"), *words], env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@contextmanager
def nginx(folder: Path) -> Iterator[str]:
    """An nginx that serves one folder with its defaults for static files (sendfile)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    conf = folder / "nginx.conf"
    conf.write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; user root;\n"
        "events {}\nhttp { access_log off; sendfile on; tcp_nopush on;\n"
        f"server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
    server = subprocess.Popen(["nginx", "-c", str(conf), "-p", str(folder)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def cold(folder: Path, environ: dict[str, str], mib: int, rounds: int) -> dict[str, float] | None:
    """Fetch into an empty cache, compared with curl and sha256sum of the same file."""
    path = folder / "program.mxr"
    write_program(path, mib)
    mxr(environ, "push", str(path), "--model", str(MODEL), "--for", "python", "--precision", "fp32")
    if not (shutil.which("nginx") and shutil.which("curl")):
        print("fetch into an empty cache: skipped, because nginx or curl is not installed")
        return None
    cache, copy = folder / "cold-cache", folder / "copy.mxr"

    def fetch() -> None:
        mxr(environ | {"MXR_CACHE_DIR": str(cache)}, "fetch", str(MODEL), *ASKED)

    def curl(url: str) -> None:
        subprocess.run(
            f"curl -s -o {copy} {url}/program.mxr && sha256sum {copy}",
            shell=True,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    with nginx(folder) as url:
        pairs = []
        for _ in range(rounds):
            shutil.rmtree(cache, ignore_errors=True)
            copy.unlink(missing_ok=True)
            os.sync()
            ours = timed(fetch)
            shutil.rmtree(cache, ignore_errors=True)
            os.sync()
            pairs.append((ours, timed(lambda: curl(url))))
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"fetch of {mib} MiB into an empty cache: {ours:.2f} s; curl from nginx, then sha256sum: {theirs:.2f} s")
    print(f"  ratio {ratio:.2f} (limit 1)")
    return {"mib": mib, "fetch": ours, "curl": theirs, "ratio": ratio}


def files(folder: Path, environ: dict[str, str], rounds: int) -> dict[str, float] | None:
    """Fetch what `cold` has published from files behind nginx, compared with the registry; then both from the cache."""
    if not shutil.which("nginx"):
        return None
    mxr(environ, "export", "--static", str(folder / "site"), "--all")
    found: dict[str, float] = {}
    with nginx(folder) as url:
        served = {"MXR_CACHE_DIR": str(folder / "served-cache")}
        static = {"MXR_CACHE_DIR": str(folder / "static-cache"), "MXR_REGISTRY": f"{url}/site"}
        static_environ = {name: value for name, value in environ.items() if name != "MXR_TOKEN"} | static

        def fetch(own: dict[str, str]) -> None:
            mxr(own, "fetch", str(MODEL), *ASKED)

        pairs = []
        for _ in range(rounds):
            took = []
            for own in (static_environ, environ | served):
                shutil.rmtree(own["MXR_CACHE_DIR"], ignore_errors=True)
                os.sync()
                took.append(timed(partial(fetch, own)))
            pairs.append(took)
        found["cold"] = statistics.median(a / b for a, b in pairs)
        time.sleep(2.5)
        fetch(static_environ)
        fetch(environ | served)
        *_, found["warm"] = paired(lambda: fetch(static_environ), lambda: fetch(environ | served), rounds * 4)
    print("fetch from files behind nginx, compared with the registry's disk:")
    print(
        f"  ratio {found['cold']:.2f} into an empty cache (limit 1.05), {found['warm']:.2f} from the cache (limit 1.05)"
    )
    return found


def cached(folder: Path, environ: dict[str, str], rounds: int) -> dict[str, float]:
    """Fetch 100 MiB from the cache, compared with importing the two libraries that fetch needs."""
    path = folder / "hundred.mxr"
    write_program(path, 100)  # 128 MiB, because each literal has 32 MiB
    environ = environ | {"MXR_CACHE_DIR": str(folder / "warm-cache")}
    mxr(environ, "push", str(path), "--model", str(MODEL), "--for", "ort", "--precision", "fp32")
    asked = ["fetch", str(MODEL), *ASKED[:-1], "ort"]
    mxr(environ, *asked)
    time.sleep(2.5)  # the memo ignores files that changed less than two seconds ago
    mxr(environ, *asked)

    def bare() -> None:
        subprocess.run([sys.executable, "-c", "import click, xxhash"], check=True)

    ours, theirs, ratio = paired(lambda: mxr(environ, *asked), bare, rounds * 4)
    print(f"fetch of 100 MiB from the cache: {ours * 1000:.0f} ms; import click, xxhash: {theirs * 1000:.0f} ms")
    print(f"  ratio {ratio:.2f} (limit 2.5)")
    return {"fetch": ours, "import": theirs, "ratio": ratio}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mxr-bench-") as name:
        folder = Path(name)
        # As root, nginx drops its privileges and reads the folder as another user.
        folder.chmod(0o755)
        with registry(folder / "data") as url:
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed programs cache their bytecode
            environ = (
                os.environ
                | {"MXR_REGISTRY": url, "MXR_CACHE_DIR": str(folder / "cache"), "HOME": str(folder)}
                | variable(url)
            )
            warm = cached(folder, environ, options.rounds)
            rows = {"cached": warm, "cold": cold(folder, environ, options.mib, options.rounds)}
            rows["files"] = files(folder, environ, options.rounds)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
