"""A demonstration of mxr with real files: publish, fetch the matching program, reject a wrong one, work offline.

`make demo` runs this script. It starts a registry with the default settings in a temporary folder, prints each command
before it runs, and removes everything at the end. If this machine has a real migraphx module, the script also compiles
a program for the CPU. It looks for migraphx in the interpreter that MXR_WORKER_PYTHON names, or else in this one and
the system's: first without changes, then with ROCm's module folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from fleet import Fleet

from mxr.display.streams import write_line

EXAMPLES = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
SPLICED = ("gfx908-sramecc+-xnack-", "gfx90a-sramecc+-xnack+", "gfx942-sramecc+-xnack-", "gfx1100", "gfx11-generic")
CONVRELU = "--model models/convrelu.onnx --rocm 7.2.0 --for python"
FOR_MI100 = (
    "mxr fetch models/convrelu.onnx --arch gfx908:sramecc+:xnack- --rocm 7.2 --migraphx 2.15 --batch 4 --for python"
)


class Demo:
    """Runs commands, prints them with their output, and stops at the first unexpected exit code."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ

    def say(self, text: str) -> None:
        """Print a heading."""
        write_line()
        write_line(f"# {text}")

    def run(self, line: str, expect: int = 0, *, quiet: bool = False) -> str:
        """Run a command as a user would type it, and print it with its output unless `quiet`. Returns its output."""
        if not quiet:
            write_line(f"$ {line}")
        words = shlex.split(line)
        done = subprocess.run(
            [str(BIN / words[0]), *words[1:]],
            env=self.environ,
            cwd=EXAMPLES,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        quiet = quiet and done.returncode == expect
        for row in done.stdout.split("\n")[:-1] if not quiet else ():
            write_line(f"  {row}")
        if done.returncode and not quiet:
            write_line(f"  (exit {done.returncode})")
        if done.returncode != expect:
            raise SystemExit(f"demo: expected exit {expect}, got {done.returncode}")
        return done.stdout


def start_registry(demo: Demo, data: Path) -> subprocess.Popen[str]:
    """Start a registry on a free port and put its URL into the environment of the demo."""
    write_line("$ mxr-registry serve --port 0 --data registry-data &")
    demo.environ.pop("MXR_REGISTRY", None)
    command = [str(BIN / "mxr-registry"), "serve", "--port", "0", "--data", str(data)]
    with (data.parent / "registry.log").open("a") as log:
        server = subprocess.Popen(command, env=demo.environ, stdout=subprocess.PIPE, stderr=log, text=True)
    assert server.stdout is not None
    line = server.stdout.readline()
    found = re.search(r"http://\S+", line)
    if not found:
        raise SystemExit(f"demo: the registry did not start: {(data.parent / 'registry.log').read_text()}")
    write_line(f"  mxr-registry: listening on {found[0]}")
    write_line(f"$ export MXR_REGISTRY={found[0]}")
    demo.environ["MXR_REGISTRY"] = found[0]
    return server


def refuse(demo: Demo) -> None:
    """Publish one program, and ask for it on another GPU."""
    demo.say("Publish a program for an MI210: mxr reads most facts from the file, options state the rest")
    demo.run(f"mxr push spliced/convrelu-{SPLICED[1]}.mxr {CONVRELU}")
    demo.say("An MI100 asks for the same model. That program would fail there, so it does not get it")
    demo.run("mxr fetch models/convrelu.onnx --arch gfx908", expect=3)


def publish(demo: Demo) -> None:
    """Publish the other examples."""
    lines = [f"mxr push spliced/convrelu-{name}.mxr {CONVRELU}" for name in SPLICED[:1] + SPLICED[2:]]
    for path in sorted((EXAMPLES / "ref").glob("convnet-b*.mxr")):
        precision = path.stem.rpartition("-")[2]
        lines.append(f"mxr push ref/{path.name} --model models/convnet.onnx --for python --precision {precision}")
    demo.say(f"Publish {len(lines)} more: for four other GPUs, and for the CPU in several batches and precisions")
    for line in lines:
        demo.run(line, quiet=True)
    demo.run("mxr ls")
    demo.say("Publishing fails if an option contradicts the file")
    demo.run(f"mxr push spliced/convrelu-gfx1100.mxr {CONVRELU} --arch gfx908:sramecc+:xnack-", expect=6)


def fetch(demo: Demo, output: Path) -> None:
    """Fetch the matching program, and show the error where there is none."""
    demo.say("Fetch the program for an MI100: what the command leaves open comes from the only program that fits")
    demo.run("mxr fetch models/convrelu.onnx --arch gfx908")
    demo.say("The complete command leaves nothing open")
    demo.run(f"{FOR_MI100} -o {output / 'model.mxr'}")
    demo.run(f"mxr inspect {output / 'model.mxr'}")
    demo.say("If no program matches the GPU, fetch fails and explains why")
    demo.run(
        "mxr fetch models/convrelu.onnx --arch gfx1030 --rocm 7.2 --migraphx 2.15 --batch 4 --for python", expect=3
    )
    demo.say("A program for the generic family of the GPU matches too, and the output says so")
    demo.run("mxr fetch models/convrelu.onnx --arch gfx1101 --rocm 7.2 --migraphx 2.15 --batch 4 --for python")
    demo.say("Fetch batch 8 in fp16 for the CPU reference target of MIGraphX 2.16")
    demo.run("mxr fetch models/convnet.onnx --kind ref --migraphx 2.16 --batch 8 --precision fp16 --for python")


def offline(demo: Demo, server: subprocess.Popen[str]) -> None:
    """Fetch again while the registry is stopped."""
    demo.say("Stop the registry: programs in the cache remain available")
    write_line("$ kill %1")
    server.terminate()
    server.wait(timeout=30)
    demo.run(FOR_MI100)
    demo.say("A program that is not in the cache cannot be fetched offline")
    demo.run(FOR_MI100.replace("gfx908", "gfx90a"), expect=69)


def migraphx_places(environ: dict[str, str]) -> list[dict[str, str]]:
    """The places where a real migraphx may be, each as the environment variables that a worker needs to find it."""
    named = environ.get("MXR_WORKER_PYTHON")
    system = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    pythons = [named] if named else [sys.executable, *([system] if system else [])]
    folder = Path(environ.get("ROCM_PATH") or "/opt/rocm", "lib")
    found = [{"MXR_WORKER_PYTHON": python} for python in pythons]
    if folder.is_dir():
        path = os.pathsep.join(filter(None, (str(folder), environ.get("PYTHONPATH"))))
        found += [{"MXR_WORKER_PYTHON": python, "PYTHONPATH": path} for python in pythons]
    return found


def find_migraphx(environ: dict[str, str]) -> tuple[dict[str, str], str] | list[str]:
    """The environment variables for a worker with a real migraphx, and its version; or why each place has none.

    `mxr-worker host` queries each interpreter in a child process, and detects the empty placeholder package.
    """
    reasons = []
    for place in migraphx_places(environ):
        done = subprocess.run(
            [str(BIN / "mxr-worker"), "host", "--kind", "ref"],
            env=environ | place,
            capture_output=True,
            text=True,
            check=False,
        )
        version = json.loads(done.stdout)["interpreter"]["migraphx"] if done.returncode == 0 else None
        if version:
            return place, ".".join(version.split(".")[:2])
        reasons.append((done.stderr.strip().splitlines() or ["Its version is unknown."])[0])
    return list(dict.fromkeys(reasons))


def start_worker(demo: Demo, place: dict[str, str]) -> subprocess.Popen[str]:
    """Start a worker and wait until it is registered."""
    shown = "".join(f"{name}={shlex.quote(value)} " for name, value in place.items())
    write_line(f"$ {shown}mxr-worker run --kind ref &")
    command = [str(BIN / "mxr-worker"), "run", "--kind", "ref"]
    worker = subprocess.Popen(command, env=demo.environ | place, stderr=subprocess.PIPE, text=True)
    assert worker.stderr is not None
    for line in worker.stderr:
        write_line(f"  {line.rstrip()}")
        if "registered" in line:
            return worker
    raise SystemExit("demo: the worker did not start")


def compile_one(demo: Demo) -> None:
    """Compile a program that nobody has published; without a real migraphx, print why this is skipped."""
    demo.say("Compile a missing program with a real migraphx, for its CPU reference target")
    found = find_migraphx(demo.environ)
    if isinstance(found, list):
        write_line("SKIPPED: this machine has no usable migraphx module.")
        for reason in found:
            write_line(f"  {reason.removeprefix('mxr-worker: ')}")
        write_line(
            "  If ROCm's migraphx is installed: make demo MXR_WORKER_PYTHON=/usr/bin/python3 PYTHONPATH=/opt/rocm/lib"
        )
        return
    place, version = found
    worker = start_worker(demo, place)
    try:
        fetch_ = f"mxr fetch models/convnet.onnx --kind ref --migraphx {version} --batch 2 --for python"
        program = demo.run(f"{fetch_} --on-miss wait -v").splitlines()[-1]
        demo.run(f"mxr inspect {shlex.quote(program)}")
        demo.say("The program is now available to every host, and in the cache of this one")
        demo.run("mxr jobs")
        demo.run(fetch_)
    finally:
        worker.terminate()
        worker.communicate(timeout=60)


def demo_environ(home: Path) -> dict[str, str]:
    """The environment of the commands: what they write is in this folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MXR_")}
    places = {"MXR_CACHE_DIR": "cache", "XDG_CONFIG_HOME": "config", "MXR_WORKER_SPOOL": "spool"}
    environ = kept | {name: str(home / folder) for name, folder in places.items()}
    if os.environ.get("MXR_WORKER_PYTHON"):
        environ["MXR_WORKER_PYTHON"] = os.environ["MXR_WORKER_PYTHON"]
    return environ


def fill(demo: Demo, data: Path) -> tuple[str, str]:
    """Have a made-up fleet work with the registry, so that its pages have something to show. Return URL and token."""
    words = ["token", "create", "demo", "--scopes", "admin", "--data", str(data)]
    done = subprocess.run(
        [str(BIN / "mxr-registry"), *words], env=demo.environ, capture_output=True, text=True, check=True
    )
    url, token = demo.environ["MXR_REGISTRY"], done.stdout.strip()
    Fleet(url, token).live()
    return url, token


def hold(demo: Demo, data: Path) -> None:
    """Keep the registry up with something to see on every page, until the user ends it."""
    demo.say("The pages of the registry: a made-up fleet asks, compiles and fails")
    url, _ = fill(demo, data)
    demo.run("mxr open")
    write_line(f"  A link works once and within a minute. Another one: MXR_REGISTRY={url} {BIN / 'mxr'} open")
    write_line("  Ctrl-C ends it, and removes everything.")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def main() -> None:
    """Run the demo."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="mxr-demo-") as folder:
        home = Path(folder)
        demo = Demo(demo_environ(home))
        demo.say("Start a registry with the default settings: SQLite and files in one folder")
        server = start_registry(demo, home / "registry-data")
        try:
            refuse(demo)
            publish(demo)
            fetch(demo, home)
            offline(demo, server)
            demo.say("Start the registry again, with the same data")
            server = start_registry(demo, home / "registry-data")
            compile_one(demo)
            if os.environ.get("HOLD"):
                hold(demo, home / "registry-data")
            else:
                url = demo.environ["MXR_REGISTRY"]
                demo.say(f"The registry's pages were at {url}: `make demo HOLD=1` keeps them up (`mxr open`)")
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()
        demo.say("Done. `mxr --help` lists all commands.")


if __name__ == "__main__":
    main()
