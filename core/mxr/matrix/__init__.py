"""Reads the matrix of `mxr precompile`, `plan` and `lock`: a file that lists the programs a fleet needs.

    MATRIX.yaml ── document ──> nodes with line numbers ── reading, fields ──> Matrix ── expansion ──> cells

Only `document` uses YAML. `fields` has the fields, for the reader and for the JSON schema.
"""

from __future__ import annotations

from .document import Variables
from .expansion import Cell, cells, select
from .fields import schema
from .matrix_file import LIMIT, Matrix, read_matrix

__all__ = ["LIMIT", "Cell", "Matrix", "Variables", "cells", "read_matrix", "schema", "select"]
