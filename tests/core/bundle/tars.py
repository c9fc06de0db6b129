"""Tars as other programs write them."""

from __future__ import annotations

import io
import tarfile
from typing import Any


def packed(*rows: tuple[str, bytes, bytes], form: int = tarfile.USTAR_FORMAT, **facts: Any) -> bytes:
    """A tar of rows of name, type and content. `facts`: further fields of each `TarInfo`."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as tar:
        for name, kind, data in rows:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname, info.mtime = kind, len(data), "target", 1_700_000_000
            for field, value in facts.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()
