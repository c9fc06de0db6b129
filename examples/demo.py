"""The main job of mxr on real files: publish, fetch the right program, be refused a wrong one, go on without a network.

`make demo` runs it. It starts a registry with its embedded default in a temporary folder, prints each command before it
runs it, and leaves nothing behind.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
SPLICED = ("gfx908-sramecc+-xnack-", "gfx90a-sramecc+-xnack+", "gfx942-sramecc+-xnack-", "gfx1100", "gfx11-generic")
FOR_MI100 = (
    "mxr fetch models/convrelu.onnx --arch gfx908:sramecc+:xnack- --rocm 7.2 --migraphx 2.15 --batch 4 --for python"
)
BOLD, PLAIN = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")


class Demo:
    """A shell that shows what it does, and stops at the first thing that is not as it should be."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ

    def say(self, text: str) -> None:
        """Prints a heading."""
        sys.stdout.write(f"\n{BOLD}# {text}{PLAIN}\n")
        sys.stdout.flush()

    def run(self, line: str, expect: int = 0, env: dict[str, str] | None = None) -> str:
        """Runs a command as a reader would type it; its standard output."""
        shown = "".join(f"{name}={value} " for name, value in (env or {}).items()) + line
        sys.stdout.write(f"$ {shown}\n")
        sys.stdout.flush()
        words = shlex.split(line)
        done = subprocess.run(
            [str(BIN / words[0]), *words[1:]],
            env=self.environ | (env or {}),
            cwd=EXAMPLES,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        sys.stdout.write("".join(f"  {row}\n" for row in done.stdout.splitlines()))
        if done.returncode:
            sys.stdout.write(f"  (exit {done.returncode})\n")
        if done.returncode != expect:
            raise SystemExit(f"demo: expected exit {expect}, got {done.returncode}")
        return done.stdout


def start_registry(demo: Demo, data: Path) -> subprocess.Popen[str]:
    """A registry on a free port; its URL goes into the environment of the demo."""
    sys.stdout.write("$ mxr-registry serve --port 0 --data registry-data &\n")
    command = [str(BIN / "mxr-registry"), "serve", "--port", "0", "--data", str(data)]
    server = subprocess.Popen(command, env=demo.environ, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    line = server.stdout.readline()
    found = re.search(r"http://\S+", line)
    if not found:
        raise SystemExit("demo: the registry did not start")
    sys.stdout.write(f"  mxr-registry: listening on {found[0]}\n$ export MXR_REGISTRY={found[0]}\n")
    demo.environ["MXR_REGISTRY"] = found[0]
    return server


def publish(demo: Demo) -> None:
    """Publishes every example."""
    demo.say("Publish: what the file tells is taken from it, the rest is said")
    for name in SPLICED:
        demo.run(f"mxr push spliced/convrelu-{name}.mxr --model models/convrelu.onnx --rocm 7.2.0 --for python")
    for batch in (1, 4, 8):
        for precision in ("fp32", "fp16"):
            path = f"ref/convnet-b{batch}-{precision}.mxr"
            if (EXAMPLES / path).exists():
                demo.run(f"mxr push {path} --model models/convnet.onnx --for python --precision {precision}")
    demo.run("mxr ls")
    demo.say("A label that the file contradicts is refused")
    demo.run(
        "mxr push spliced/convrelu-gfx1100.mxr --model models/convrelu.onnx --arch gfx908:sramecc+:xnack- "
        "--rocm 7.2.0 --for python",
        expect=6,
    )


def fetch(demo: Demo, output: Path) -> None:
    """Fetches the right one, and is refused where there is none."""
    demo.say("Fetch the right one for an MI100")
    demo.run(f"{FOR_MI100} -o {output / 'model.mxr'}")
    demo.run(f"mxr inspect {output / 'model.mxr'}")
    demo.say("An arch with no program is refused, with the reasons")
    demo.run(
        "mxr fetch models/convrelu.onnx --arch gfx1030 --rocm 7.2 --migraphx 2.15 --batch 4 --for python", expect=3
    )
    demo.say("A program of the arch's generic family serves, and that is said")
    demo.run("mxr fetch models/convrelu.onnx --arch gfx1101 --rocm 7.2 --migraphx 2.15 --batch 4 --for python")
    demo.say("Batch 8 in fp16 for the CPU reference target of MIGraphX 2.16")
    demo.run("mxr fetch models/convnet.onnx --kind ref --migraphx 2.16 --batch 8 --precision fp16 --for python")


def offline(demo: Demo, server: subprocess.Popen[str]) -> None:
    """Fetches again with the registry stopped."""
    demo.say("Stop the registry: the cache goes on")
    sys.stdout.write("$ kill %1\n")
    server.terminate()
    server.wait(timeout=30)
    demo.run(FOR_MI100)
    demo.say("What it never had, it cannot give, and says so")
    demo.run(FOR_MI100.replace("gfx908", "gfx90a"), expect=69)


def main() -> None:
    """Runs the demo."""
    with tempfile.TemporaryDirectory(prefix="mxr-demo-") as folder:
        home = Path(folder)
        environ = {name: value for name, value in os.environ.items() if not name.startswith("MXR_")}
        environ |= {"MXR_CACHE_DIR": str(home / "cache"), "XDG_CONFIG_HOME": str(home / "config")}
        demo = Demo(environ)
        demo.say("A registry with nothing configured: SQLite and files in one folder")
        server = start_registry(demo, home / "registry-data")
        try:
            publish(demo)
            fetch(demo, home)
            offline(demo, server)
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()
        demo.say("Done. `mxr --help` shows the rest.")


if __name__ == "__main__":
    main()
