"""Retention rules, read once in `main` from the section [retention] of the registry's configuration file.

    [retention]
    unused_days = 90            # remove artifacts that were not used for this long
    keep_per_model = 40         # keep only this many artifacts per model, those used last
    total_size = "2TiB"         # remove the least recently used artifacts until the rest fits
    model_days = 30             # remove the bytes of models not compiled for this long; clients upload them again
    job_days = 90               # remove closed jobs and their logs
    miss_days = 90              # remove misses that did not recur
    grace_hours = 24            # keep blobs reported as present for this long, even if nothing refers to them
    every_hours = 6             # interval between sweeps of `serve`; 0 leaves sweeping to `mxr-registry sweep`

If the first four are not set, a sweep removes no published artifact and no model uploaded for compiling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mxr.util.codec import decode, refuse

from .job_rules import read_config

DAY = 86_400.0
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The rules for a sweep. The unit is in the name of each field; None keeps everything."""

    unused_days: float | None = None
    keep_per_model: int | None = None
    total_size: str | None = None
    model_days: float | None = None
    job_days: float = 90.0
    miss_days: float = 90.0
    grace_hours: float = 24.0
    every_hours: float = 6.0

    def __post_init__(self) -> None:
        for name in ("unused_days", "model_days", "job_days", "miss_days", "grace_hours", "every_hours"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 36_500:
                raise refuse(f"retention.{name}", "a number from 0 to 36500", value)
        if self.keep_per_model is not None and not 1 <= self.keep_per_model <= 10**9:
            raise refuse("retention.keep_per_model", "an integer of 1 or more", self.keep_per_model)
        _bytes(self.total_size)

    @property
    def total_bytes(self) -> int | None:
        """The maximum total size of all kept blobs in bytes, or None for no limit."""
        return _bytes(self.total_size)

    @classmethod
    def read(cls, environ: Mapping[str, str], file: Path | None = None) -> RetentionRules:
        """Read the rules from `file`, or from the file that MXR_REGISTRY_CONFIG names, or use the defaults.

        Raises `UsageError`.
        """
        return decode(cls, dict(read_config(environ, file).retention), "retention")


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,15}) ?([KMGTP]iB)?", text, re.ASCII)
    if not found:
        raise refuse("retention.total_size", "a size such as 500GiB or 2TiB", text)
    return int(found[1]) * UNITS[found[2] or ""]
