"""MIGraphX's number types, and the byte pattern of a static shape in a file."""

from __future__ import annotations

import functools
import re

BYTES = {
    "bool_type": 1,
    "half_type": 2,
    "bf16_type": 2,
    "float_type": 4,
    "double_type": 8,
    "fp8e4m3fnuz_type": 1,
    "fp8e4m3fn_type": 1,
    "fp8e5m2_type": 1,
    "fp8e5m2fnuz_type": 1,
}
BYTES |= {f"{sign}int{bits}_type": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)}
"""Bytes per number, by MIGraphX's name of the type. Source: MIGraphX's src/include/migraphx/shape.hpp."""


@functools.cache
def static_shape() -> re.Pattern[bytes]:
    """Return the pattern of a whole map of a static shape. Programs repeat a few hundred of them many thousand times.

    The keys are in the order in which MIGraphX writes them. A map in another order is also read, but more slowly.
    """
    number = rb"(?:[\x00-\x7f]|\xcc.|\xcd..|\xce.{4})"
    numbers = rb"(?:\x90|" + b"|".join(bytes([0x91 + n]) + number + b"{%d}" % (n + 1) for n in range(6)) + b")"
    kinds = (bytes([0xA0 + len(name)]) + name.encode() for name in sorted(BYTES))
    kind = b"\xa4type(?:" + b"|".join(map(re.escape, kinds)) + b")"
    fields = kind + b"\xaasub_shapes\x90" + b"\xa4lens" + numbers + b"\xa7strides" + numbers
    open_dims = rb"\xb2dynamic_dimensions\x90"
    whole = rb"(?:\x84" + fields + rb"|\x85" + fields + open_dims
    whole += rb"|\x86" + fields + open_dims + rb"\xabdyn_strides\x90)"
    return re.compile(whole, re.DOTALL)
