"""Logging of the programs that serve: one record per line, whatever a message contains, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
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


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object: `at`, `level`, `logger`, `message`, `request_id`, `trace`, and its fields."""

    def __init__(self, request: Callable[[], str] = str) -> None:
        """`request`: see `LineFormatter`."""
        super().__init__()
        self._request = request

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of the record."""
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        found = {"at": at.replace("+00:00", "Z"), "level": record.levelname.lower(), "logger": record.name}
        found["message"] = printable(record.getMessage())
        if id := self._request():
            found["request_id"] = id
        if record.exc_info:
            found["trace"] = self.formatException(record.exc_info)
        return json.dumps(found | dict(getattr(record, FIELDS, {})), default=str)


FIELDS = "mxr_fields"
"""The attribute of a record with its fields: a JSON line has them one by one, a text line has them in its message."""


def with_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the argument `extra` of a record with these fields."""
    return {FIELDS: fields}


INTERVAL = 60.0
"""Seconds between two lines about the same."""


class RepeatedLines:
    """Logs what comes again and again, such as the failures of an outage, once a minute with a count. Thread-safe."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, int]] = {}

    def warning(self, kind: str, message: str) -> None:
        """Log a message, unless one of this kind was logged within a minute: then it is counted for the next one."""
        with self._lock:
            now = self._clock()
            logged, count = self._known.get(kind, (-INTERVAL, 0))
            if now - logged < INTERVAL:
                self._known[kind] = logged, count + 1
                return
            if len(self._known) >= MAX_KINDS:
                self._known.clear()
            self._known[kind] = now, 0
        self._log.warning("%s%s", message, f" ({count} more like it in {now - logged:.0f} s)" if count else "")


MAX_KINDS = 1_000
"""Kinds of messages that are remembered."""


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


def use_json(request: Callable[[], str] = str) -> None:
    """Write JSON from now on, after `configure`."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter(request))
