"""A board on the screen: a table that is drawn anew on a terminal, one line for each change elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable

import click

from mxr.precompilation.reports import words
from mxr.precompilation.run import (
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

from .compiling import duration, printable
from .output import note

FIRST = (FAILED, NO_WORKER, LATER, CANCELLED, RUNNING, QUEUED, MISSING, COMPILED)
"""Which cells stand first when the terminal cannot hold all of them; those that were there before are only counted."""


class Screen:
    """What a person sees of a board while it changes, on standard error."""

    def __init__(self, board: MatrixStatus) -> None:
        self.board = board
        self.live = sys.stderr.isatty()
        self._height = 0
        self._told: dict[int, tuple[str, str | None]] = {}
        self._away: str | None = None

    def show(self, changed: Iterable[int]) -> None:
        """Shows the board after these cells changed."""
        self._draw() if self.live else self._tell(changed)

    def close(self) -> None:
        """Leaves the last picture where it is."""
        self._height = 0

    def _tell(self, changed: Iterable[int]) -> None:
        if self.board.away and self.board.away != self._away:
            note(f"mxr: {printable(self.board.away)} Trying again.")
        self._away = self.board.away
        counts = self.board.counts()
        ended = len(self.board.places) - counts[QUEUED] - counts[RUNNING] - counts[MISSING]
        for at in changed:
            place = self.board.places[at]
            mark = (place.state, place.job.worker if place.job and place.state == RUNNING else None)
            if self._told.get(at) != mark:
                self._told[at] = mark
                note(f"mxr: [{ended}/{len(self.board.places)}] {name(place)}: {state(place)}")

    def _draw(self) -> None:
        columns, lines = shutil.get_terminal_size()
        ranked = sorted((each for each in self.board.places if each.state in FIRST), key=lambda p: FIRST.index(p.state))
        room = max(1, lines - 4)
        rows = [f"{name(place)}: {state(place)}" for place in ranked[:room]]
        rest = len(ranked) - room
        rows += [f"and {rest} more"] if rest > 0 else []
        rows.append(totals(self.board))
        rows += [f"{printable(self.board.away)} Trying again."] if self.board.away else []
        up = f"\x1b[{self._height}A\r" if self._height else ""
        click.echo(up + "\x1b[J" + "".join(f"{row[: columns - 1]}\n" for row in rows), err=True, nl=False)
        self._height = len(rows)


def name(place: CellStatus) -> str:
    """A cell in one line."""
    cell = place.wanted.cell
    return printable(f"{cell.name} {cell.target} {cell.variant}")


def state(place: CellStatus) -> str:
    """Where a cell stands, with the time it took and the estimate."""
    job = place.job
    took = place.running()
    if place.state == RUNNING and job is not None:
        return f"{job.phase or 'compiling'} on {job.worker}, {duration(took or 0)} ({_about(place)})"
    if place.state == QUEUED and job is not None:
        again = f", attempt {job.attempts + 1} to come" if job.attempts else ""
        return f"queued as {job.id[:12]}{again} ({_about(place)})"
    if place.state == COMPILED:
        return "compiled" + (f" in {duration(took)}" if took is not None else "")
    why = printable(words(place))
    return f"{place.state}: {why}" if place.problem else f"{place.state} {why}".rstrip()


def _about(place: CellStatus) -> str:
    job = place.job
    if job is None or job.estimate is None:
        return "no estimate"
    return f"about {duration(job.estimate)} by {job.estimate_from}"


def totals(board: MatrixStatus) -> str:
    """The numbers of a board in one line."""
    counts = ", ".join(f"{count} {each}" for each, count in board.counts().items() if count)
    return f"{len(board.places)} cells: {counts}"
