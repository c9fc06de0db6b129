"""What the supervisor reads from the kernel: the process tree, memory, and GPU memory as amdkfd reports it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mxr_workers.supervisor import descendants, memory_of, vram_of


def test_descendants_and_their_memory_are_found() -> None:
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', sys.argv[1]])"
    inner = "kept = b'x' * (64 << 20); print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", nested, inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as outer:
        assert outer.stdout is not None and outer.stdin is not None
        assert outer.stdout.readline() == b"ready\n"
        tree = descendants(os.getpid())
        assert outer.pid in tree
        below = descendants(outer.pid)
        assert len(below) == 1 and below[0] in tree
        assert 64 << 20 < memory_of(below[0]) < 128 << 20
        assert memory_of(outer.pid) < 32 << 20
        outer.stdin.write(b"\n")
    assert memory_of(outer.pid) == 0


def test_gpu_memory_is_the_sum_over_all_gpus_or_unknown(tmp_path: Path) -> None:
    home = tmp_path / "17"
    home.mkdir()
    for gpu, size in (("1002", 1 << 30), ("1003", 1 << 20)):
        (home / f"vram_{gpu}").write_text(f"{size}\n")
    assert vram_of(17, tmp_path) == (1 << 30) + (1 << 20)
    assert vram_of(18, tmp_path) is None
