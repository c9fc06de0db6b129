"""Logging of the programs that serve: one record per line, whatever a message contains."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from .text import printable, printable_lines

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LineFormatter(logging.Formatter):
    """Formats a record as one line. The lines of a traceback follow, indented, so that none looks like a record."""

    def __init__(self, request: Callable[[], str] = str) -> None:
        """`request`: gives the id of the request that the thread works for, or an empty text."""
        super().__init__(FORMAT)
        self._request = request

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of the record."""
        message = printable(self.formatMessage(_line_record(record, self)))
        message += f" (request {id})" if (id := self._request()) else ""
        trace = [self.formatException(record.exc_info)] if record.exc_info else []
        trace += [self.formatStack(record.stack_info)] if record.stack_info else []
        return "\n".join([message, *(f"    {line}" for text in trace for line in printable_lines(text))])


def _line_record(record: logging.LogRecord, formatter: logging.Formatter) -> logging.LogRecord:
    record.message = record.getMessage()
    record.asctime = formatter.formatTime(record)
    return record


def configure(program: str, *, debug: bool = False, request: Callable[[], str] = str) -> None:
    """Send all records, warnings and unhandled exceptions of this process to standard error as such lines.

    `request`: see `LineFormatter`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(request))
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    log = logging.getLogger(program)

    def unhandled(kind: type[BaseException], value: BaseException | None, trace: TracebackType | None) -> None:
        log.critical("unhandled exception", exc_info=(kind, value or kind(), trace))

    def unhandled_in_thread(found: Any) -> None:
        if found.exc_type is not SystemExit:
            unhandled(found.exc_type, found.exc_value, found.exc_traceback)

    sys.excepthook = unhandled
    threading.excepthook = unhandled_in_thread
    sys.unraisablehook = lambda found: unhandled(found.exc_type, found.exc_value, found.exc_traceback)
