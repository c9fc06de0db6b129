"""Clocks that are wrong, for one process and its children: Debian's libfaketime."""

from __future__ import annotations

from pathlib import Path

from . import debian


def wrong_by(shift: str) -> dict[str, str]:
    """The variables of a process whose time of day is wrong, by `+1h` or `-1h`; its monotonic clock is right."""
    program = Path(debian.program("faketime", "faketime", "libfaketime"))
    (library, *_) = sorted((program.parents[2] / "usr" / "lib").glob("**/libfaketimeMT.so.1"))
    # The times of files are those of another clock, as on a file server.
    alone = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
    return {"LD_PRELOAD": str(library), "FAKETIME": shift, **alone}
