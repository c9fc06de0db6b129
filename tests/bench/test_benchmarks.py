"""Each benchmark runs to its end at a tiny size, without limits of time, so that it keeps fitting the code.

In `make test` the quick ones do; the types of all are checked (`make types`), and `make soak` runs all.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from harness.scale import SOAK
from paths import ROOT

NAMES = sorted(path.stem.removeprefix("bench_") for path in (ROOT / "bench").glob("bench_*.py"))
QUICK = {"hashing", "reader", "sweep"}


def run(*words: str) -> list[str]:
    """The lines that a program of `bench/` prints."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("MXR_")}
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / words[0], *words[1:]],
        capture_output=True,
        text=True,
        env=environ,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", [name for name in NAMES if SOAK or name in QUICK])
def test_a_benchmark_runs(name: str) -> None:
    """Its last line is the JSON document of its figures, or its table ends well."""
    assert json.loads(run("run.py", "--tiny", name)[-1])


@pytest.mark.skipif(not SOAK, reason="it takes a minute: make soak runs it")
@pytest.mark.skipif(shutil.which("curl") is None, reason="a peer is curl, which is not installed")
def test_the_comparison_runs_and_finds_its_table() -> None:
    """Each row that it measures has a figure in bench/README.md, apart from the size."""
    table = (ROOT / "bench" / "README.md").read_text()
    rows = [line.split(" | ")[0].replace("8 MiB", "512 MiB") for line in run("compare.py", "--tiny")]
    assert len(rows) == 8
    assert [row for row in rows if f"\n{row} | " not in table] == []
