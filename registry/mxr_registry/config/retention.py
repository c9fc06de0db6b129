"""What is kept, and for how long: read once in main, from the section [retention] of the registry's configuration.

    [retention]
    unused_days = 90            # artifacts that nobody used for so long go
    keep_per_model = 40         # of each model only those used last
    total_size = "2TiB"         # what was used longest ago goes until the rest fits
    model_days = 30             # bytes of models that nothing was compiled from for so long; asking uploads them again
    job_days = 90               # closed jobs with their logs
    miss_days = 90              # misses that did not come again
    grace_hours = 24            # how long bytes stay that somebody was told to be here, whatever is made of them
    every_hours = 6             # how often `serve` sweeps by itself; 0 leaves it to `mxr-registry sweep`

Without the first four nothing goes that somebody published or uploaded for compiling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mxr.util.codec import decode, refuse

from .job_rules import document

DAY = 86_400.0
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The rules of sweeping. Days but for the names that say otherwise; None keeps everything."""

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
            raise refuse("retention.keep_per_model", "a count from 1 on", self.keep_per_model)
        _bytes(self.total_size)

    @property
    def total_bytes(self) -> int | None:
        """The size in bytes that all kept bytes together may have."""
        return _bytes(self.total_size)

    @classmethod
    def read(cls, environ: Mapping[str, str], file: Path | None = None) -> RetentionRules:
        """The rules in `file`, else in what MXR_REGISTRY_CONFIG names; else the usual. Raises `Usage`."""
        return decode(cls, dict(document(environ, file).retention), "retention")


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,15}) ?([KMGTP]iB)?", text, re.ASCII)
    if not found:
        raise refuse("retention.total_size", "a size such as 500GiB or 2TiB", text)
    return int(found[1]) * UNITS[found[2] or ""]
