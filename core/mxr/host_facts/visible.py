"""Applies ROCR_VISIBLE_DEVICES and then HIP_VISIBLE_DEVICES to the GPUs of a host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Uuids = Sequence[str | None]
"""The unique id of each GPU (16 hex digits), or None."""


def visible(environ: Mapping[str, str], uuids: Uuids) -> tuple[list[int], list[str]]:
    """Return the indexes of the GPUs that a HIP program sees, in its order, and the variables that apply.

    An empty variable hides all GPUs. Both layers ignore the rest of the list after the first invalid entry.
    GPU_DEVICE_ORDINAL applies only to OpenCL.
    Source: ROCm/ROCR-Runtime, amd_filter_device.cpp; ROCm/clr, rocclr/device/rocm/rocdevice.cpp, Device::init.
    """
    order, variables = list(range(len(uuids))), []
    if "ROCR_VISIBLE_DEVICES" in environ:
        variables.append("ROCR_VISIBLE_DEVICES")
        order = rocr_visible(environ["ROCR_VISIBLE_DEVICES"], uuids)
    chosen, hip = hip_layer(environ, [uuids[index] for index in order])
    return [order[index] for index in chosen], variables + hip


def hip_layer(environ: Mapping[str, str], uuids: Uuids) -> tuple[list[int], list[str]]:
    """Do the same for HIP, given the GPUs that ROCr reports. HIP_VISIBLE_DEVICES overrides CUDA_VISIBLE_DEVICES."""
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        if name in environ:
            return hip_visible(environ[name], uuids), [name]
    return list(range(len(uuids))), []


def rocr_visible(text: str, uuids: Uuids) -> list[int]:
    """Parse ROCR_VISIBLE_DEVICES: indexes or prefixes of `GPU-<uuid>`. A repeated GPU ends the list."""
    chosen: list[int] = []
    for word in text.split(","):
        index = _rocr_index(word.strip().upper(), uuids)
        if index is None or index in chosen:
            break
        chosen.append(index)
    return chosen


def _rocr_index(word: str, uuids: Uuids) -> int | None:
    if word.startswith("G"):
        if not 5 <= len(word) <= 20:
            return None
        found = [index for index, uuid in enumerate(uuids) if uuid and f"GPU-{uuid.upper()}".startswith(word)]
        return found[0] if len(found) == 1 else None
    # Like C's strtol with base 0: decimal, hexadecimal (0x) or octal (0).
    if not re.fullmatch(r"0X[0-9A-F]{1,8}|0[0-7]{0,8}|[1-9][0-9]{0,8}", word):
        return None
    index = int(word, 16) if "X" in word else int(word, 8 if word.startswith("0") else 10)
    return index if index < len(uuids) else None


def hip_visible(text: str, uuids: Uuids) -> list[int]:
    """Parse HIP_VISIBLE_DEVICES: plain indexes or `GPU-<uuid>`. A repeated GPU counts once."""
    chosen: list[int] = []
    for word in text.split(","):
        index = _hip_index(word, uuids)
        if index is None:
            break
        if index not in chosen:
            chosen.append(index)
    return chosen


def _hip_index(word: str, uuids: Uuids) -> int | None:
    if "GPU-" in word:
        found = [index for index, uuid in enumerate(uuids) if uuid and word in f"GPU-{uuid}"]
        return found[0] if found else None
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", word) or int(word) >= len(uuids):
        return None
    return int(word)
