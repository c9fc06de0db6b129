"""The progress of a matrix: a table that is redrawn on a terminal, one line per change elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable

from mxr.display import streams
from mxr.display.text import counted
from mxr.plans.matrix_reports import cell_reason
from mxr.plans.matrix_run import (
    CANCELLED,
    COMPILED,
    FAILED,
    LATER,
    MISSING,
    NO_WORKER,
    QUEUED,
    RUNNING,
    CellStatus,
    MatrixStatus,
)

from .job_progress import QUIET_SECONDS, job_share
from .output import format_duration, note

DISPLAY_ORDER = (FAILED, NO_WORKER, LATER, CANCELLED, RUNNING, QUEUED, MISSING, COMPILED)
"""Which cells come first when the terminal has too few lines. Cells that needed no compile are only counted."""

UNFINISHED = (MISSING, QUEUED, RUNNING)


class MatrixDisplay:
    """Shows a matrix on standard error while its cells change."""

    def __init__(self, matrix: MatrixStatus) -> None:
        self.matrix = matrix
        self.live = streams.on_terminal()
        self._height = 0
        self._reported: dict[int, tuple[str, str | None]] = {}
        self._away: str | None = None
        self._told = time.monotonic()

    def show(self, changed: Iterable[int]) -> None:
        """Show the matrix after the cells with these indexes have changed."""
        self._redraw() if self.live else self._report(changed)

    def close(self) -> None:
        """Keep the last table on the screen: the next one is drawn below it."""
        self._height = 0

    def _report(self, changed: Iterable[int]) -> None:
        if self.matrix.away and self.matrix.away != self._away:
            note(f"mxr: {self.matrix.away} Retrying.")
        self._away = self.matrix.away
        counts = self.matrix.counts()
        lines: list[CellStatus] = []
        for index in changed:
            cell = self.matrix.cells[index]
            status = (cell.state, cell.job.worker if cell.job and cell.state == RUNNING else None)
            if self._reported.get(index) != status:
                self._reported[index] = status
                lines.append(cell)
        finished = len(self.matrix.cells) - sum(counts[state] for state in UNFINISHED)
        finished -= sum(cell.state not in UNFINISHED for cell in lines)
        now = time.monotonic()
        if lines:
            self._told = now
        elif now - self._told >= QUIET_SECONDS:
            self._told = now
            note(f"mxr: {totals(self.matrix)}")
        for cell in lines:
            finished += cell.state not in UNFINISHED
            # The result gives the reason of each cell that has no program.
            state = cell.state if cell.problem else cell_state(cell)
            note(f"mxr: [{finished}/{len(self.matrix.cells)}] {cell_name(cell)}: {state}")

    def _redraw(self) -> None:
        _, lines = streams.terminal_size()
        cells = [cell for cell in self.matrix.cells if cell.state in DISPLAY_ORDER]
        cells.sort(key=lambda cell: DISPLAY_ORDER.index(cell.state))
        # Lines for: "and N more", the totals, a message about the registry, the cursor.
        available = max(1, lines - 4)
        rows = [f"{cell_name(cell)}: {cell_state(cell)}" for cell in cells[:available]]
        hidden = len(cells) - available
        rows += [f"and {hidden} more"] if hidden > 0 else []
        rows.append(totals(self.matrix))
        rows += [f"{self.matrix.away} Retrying."] if self.matrix.away else []
        streams.update_lines(rows, above=self._height)
        self._height = len(rows)


def cell_name(cell: CellStatus) -> str:
    """The model, target and variant of a cell."""
    name = cell.request.cell
    return f"{name.name} {name.target} {name.variant}"


def cell_state(cell: CellStatus) -> str:
    """The state of a cell, with the time that it took and the estimate."""
    job = cell.job
    took = cell.running()
    if cell.state == RUNNING and job is not None:
        share = f", {job_share(took or 0, job.estimate)}" if job.estimate else ""
        return f"{job.phase or 'compiling'} on {job.worker}, {format_duration(took or 0)}{share} ({_estimate(cell)})"
    if cell.state == QUEUED and job is not None:
        attempt = f", attempt {job.attempts + 1}" if job.attempts else ""
        return f"queued as {job.id[:12]}{attempt} ({_estimate(cell)})"
    if cell.state == COMPILED:
        return "compiled" + (f" in {format_duration(took)}" if took is not None else "")
    reason = cell_reason(cell)
    return f"{cell.state}: {reason}" if cell.problem else f"{cell.state} {reason}".rstrip()


def _estimate(cell: CellStatus) -> str:
    job = cell.job
    if job is None or job.estimate is None:
        return "no estimate"
    return f"about {format_duration(job.estimate)}, based on {job.estimate_from}"


def totals(matrix: MatrixStatus) -> str:
    """The number of cells in each state, in one line."""
    counts = ", ".join(f"{count} {state}" for state, count in matrix.counts().items() if count)
    return f"{counted(len(matrix.cells), 'cell')}: {counts}"
