"""Each benchmark runs to its end at a tiny size, without limits of time, so that it keeps fitting the code."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from paths import ROOT

NAMES = sorted(path.stem.removeprefix("bench_") for path in (ROOT / "bench").glob("bench_*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs(name: str) -> None:
    """Its last line is the JSON document of its figures, or its table ends well."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("MXR_")}
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "run.py", "--tiny", name],
        capture_output=True,
        text=True,
        env=environ,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])


AWS = ROOT / "bench" / "results" / "peers"


@pytest.mark.skipif(not AWS.exists(), reason="`make bench` has not installed the peers here")
def test_the_comparison_runs_and_finds_its_table() -> None:
    """Each row that it measures has a figure in bench/README.md, apart from the size."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("MXR_")}
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "compare.py", "--tiny"],
        capture_output=True,
        text=True,
        env=environ,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    table = (ROOT / "bench" / "README.md").read_text()
    rows = [line.split(" | ")[0].replace("32 MiB", "512 MiB") for line in done.stdout.splitlines()]
    assert len(rows) == 6
    assert [row for row in rows if f"\n{row} | " not in table] == []
