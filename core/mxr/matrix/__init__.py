"""The matrix of `mxr precompile`, `plan` and `lock`: which programs a fleet needs, written down once.

    MATRIX.yaml ── document ──> nodes with lines ── reading, by the table ──> Matrix ── expansion ──> cells

`document` is the one place that knows YAML; `table` says which fields there are, and is read for the JSON schema too.
"""

from __future__ import annotations

from .expansion import Cell, cells
from .reading import LIMIT, Matrix, read
from .schema import schema

__all__ = ["LIMIT", "Cell", "Matrix", "cells", "read", "schema"]
