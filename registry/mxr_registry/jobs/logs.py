"""Job logs of bounded size: the first and last part of a log are kept, and the bytes dropped in between are counted.

Offsets are in bytes of UTF-8 from the start of the log, including dropped bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import bindparam, delete, insert, select, update

from mxr_registry.database.job_tables import JobLogRow, JobRow
from mxr_registry.database.session import Row, Session

HEAD = 256 * 1024
"""Bytes kept from the start of a log."""

TAIL = 1024 * 1024
"""Bytes kept from the end of a log."""

ROW_SIZE = 32 * 1024
"""Approximate number of bytes per row."""

PAGE = 32 * 1024
"""Approximate number of bytes that are read at once, and of an event of a stream: JSON writes a control character as
six letters, and an event that its client does not take is held several times."""

SIZE = select(JobRow.log_size).where(JobRow.seq == bindparam("of"))
GROWN = update(JobRow).where(JobRow.seq == bindparam("of")).values(log_size=bindparam("to"))
LAST = (
    select(JobLogRow.start, JobLogRow.size, JobLogRow.data)
    .where(JobLogRow.job == bindparam("of"))
    .order_by(JobLogRow.start.desc())
    .limit(1)
)
WRITE = insert(JobLogRow)


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A part of a log from `start`. `skipped` bytes before it were dropped. `next` is the offset after it."""

    start: int
    next: int
    skipped: int
    data: bytes


def append(session: Session, seq: int, text: str) -> None:
    """Append to a job's log, and drop what is in neither head nor tail. The caller has locked the job's row."""
    if not text:
        return
    row = JobLogRow
    size = session.execute(SIZE, {"of": seq}).scalar_one()
    last = session.execute(LAST, {"of": seq}).first() if size else None
    for data in _split(text):
        if last is not None and last.start + last.size == size and last.size + len(data) <= ROW_SIZE:
            where = (row.job == seq, row.start == last.start)
            session.execute(update(row).where(*where).values(size=last.size + len(data), data=last.data + data))
        else:
            session.execute(WRITE, {"job": seq, "start": size, "size": len(data), "data": data})
        size, last = size + len(data), None
    session.execute(GROWN, {"of": seq, "to": size})
    if size > HEAD + TAIL:
        session.execute(delete(row).where(row.job == seq, row.start >= HEAD, row.start + row.size <= size - TAIL))


def _split(text: str) -> Iterator[bytes]:
    """The text as UTF-8 in parts of at most `ROW_SIZE` bytes, split between characters."""
    step = ROW_SIZE // 4
    for start in range(0, len(text), step):
        yield text[start : start + step].encode()


def read_log(session: Session, seq: int, offset: int, end: int) -> list[LogChunk]:
    """Return what is kept of a log between two offsets: about `PAGE` bytes from the first one on."""
    row = JobLogRow
    query = select(row.start, row.size, row.data).where(row.job == seq, row.start + row.size > offset, row.start < end)
    chunks: list[LogChunk] = []
    at, count = offset, 0
    # A row is small only beside one that is not.
    for each in session.execute(query.order_by(row.start).limit(2 * (PAGE // ROW_SIZE + 1))):
        chunk = _chunk(each, at, end)
        chunks.append(chunk)
        at, count = chunk.next, count + len(chunk.data)
        if count >= PAGE:
            break
    return chunks


def _chunk(row: Row, at: int, end: int) -> LogChunk:
    begin, end = max(at, row.start), min(end, row.start + row.size)
    return LogChunk(begin, end, begin - at, bytes(row.data)[begin - row.start : end - row.start])


def text_of(chunks: list[LogChunk]) -> bytes:
    """Return the text of a log, with a note wherever bytes were dropped."""
    parts = []
    for chunk in chunks:
        if chunk.skipped:
            parts.append(f"\n[... {chunk.skipped} bytes of the log were not kept ...]\n".encode())
        parts.append(chunk.data)
    return b"".join(parts)
