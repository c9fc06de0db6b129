"""What a sweep removes."""

from __future__ import annotations

from dataclasses import dataclass

from mxr.configuration.schema import BYTES, DAYS, HOURS, setting

DAY = 86_400.0
MOST_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """What is kept. Without the first four, a sweep removes no published artifact and no model.

    None keeps everything. A sweep never removes promoted artifacts or artifacts that a registered lock pins.
    """

    unused_days: float | None = setting(
        None,
        "Remove artifacts that were not used for this long; use from the caches of hosts counts.",
        unit=DAYS,
        least=0,
        most=MOST_DAYS,
        example="90",
        absent="they are kept",
    )
    keep_per_model: int | None = setting(
        None,
        "Keep only this many artifacts per model, those used last.",
        least=1,
        most=10**9,
        example="40",
        absent="all are kept",
    )
    total_size: int | None = setting(
        None,
        "Remove the least recently used artifacts until the blobs of the rest fit; shared bytes count once.",
        unit=BYTES,
        least=0,
        example='"2TiB"',
        absent="no limit",
    )
    model_days: float | None = setting(
        None,
        "Remove the bytes of models that were not compiled for this long; clients upload them again.",
        unit=DAYS,
        least=0,
        most=MOST_DAYS,
        example="30",
        absent="they are kept",
    )
    job_days: float = setting(90.0, "Remove closed jobs and their logs.", unit=DAYS, least=0, most=MOST_DAYS)
    event_days: float = setting(
        365.0, "Remove events of the trail (`mxr history`).", unit=DAYS, least=0, most=MOST_DAYS
    )
    token_days: float = setting(
        90.0, "Remove tokens that expired, or were revoked and never expire.", unit=DAYS, least=0, most=MOST_DAYS
    )
    damaged_days: float = setting(
        30.0, "Remove damaged blobs that were set aside for analysis.", unit=DAYS, least=0, most=MOST_DAYS
    )
    miss_days: float = setting(90.0, "Remove misses that did not recur.", unit=DAYS, least=0, most=MOST_DAYS)
    grace_hours: float = setting(
        24.0,
        "Keep blobs that were reported as present for this long, even if nothing refers to them.",
        unit=HOURS,
        least=0,
        most=MOST_DAYS,
    )
    every_hours: float = setting(
        6.0,
        "Time between sweeps of `serve`; 0 leaves sweeping to `mxr-registry sweep`.",
        unit=HOURS,
        least=0,
        most=MOST_DAYS,
    )
