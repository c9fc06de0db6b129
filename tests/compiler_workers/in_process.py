"""Run requests of the compile child in the test process, with the MIGraphX double.

Starting an interpreter costs far more than what most tests examine. This interpreter runs the same handlers on the same
requests, and delivers the same result and log, without process, limits and sandbox; test_child_failures.py and one
test in test_compilation.py use real processes.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from mxr_workers.compiler.__main__ import main
from mxr_workers.interpreter import Interpreter
from mxr_workers.sandbox import ChildLimits, ChildLog, ChildObserver, ChildResult


class InProcessInterpreter(Interpreter):
    """Runs children as function calls. The folders of `PYTHONPATH` in `environ` provide the double and its settings."""

    def run(
        self,
        verb: str,
        request: Mapping[str, Any],
        folder: Path,
        limits: ChildLimits,
        *,
        environment: Mapping[str, str] | None = None,
        log: ChildLog | None = None,
        observer: ChildObserver | None = None,
        reads: Sequence[Path] = (),
        writes: Sequence[Path] = (),
    ) -> ChildResult:
        """As `Interpreter.run`, with limits, environment and `observer.stop` ignored."""
        folder.mkdir(parents=True, exist_ok=True)
        log, observer = log or ChildLog(), observer or ChildObserver()
        stdin = io.StringIO(json.dumps(request))
        with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as printed:
            with self._double(), _working_folder(folder), _standard_output(printed), patch.object(sys, "stdin", stdin):
                code = main(verb, str(os.dup(report.fileno())))
            rows = [json.loads(line) for line in _content(report).splitlines()]
            log.add(_content(printed))
        phases = [row["phase"] for row in rows if "phase" in row]
        for phase in phases:
            observer.phase(phase)
        return ChildResult(
            "exited",
            code=code,
            seconds=0.001,
            peak_memory=64 << 20,
            result=rows[-1].get("result"),
            failed=rows[-1].get("failed"),
            phase=phases[-1] if phases else "start",
            warnings=tuple(row["warning"] for row in rows if "warning" in row),
        )

    @contextmanager
    def _double(self) -> Iterator[None]:
        """Make the double importable, and import it anew: it reads its settings on import."""
        before = _forget_migraphx()
        with patch.object(sys, "path", [*self.environ["PYTHONPATH"].split(os.pathsep), *sys.path]):
            yield
        _forget_migraphx()
        sys.modules.update(before)


def _forget_migraphx() -> dict[str, ModuleType]:
    found = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "migraphx"}
    for name in found:
        del sys.modules[name]
    return found


@contextmanager
def _working_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _standard_output(into: Any) -> Iterator[None]:
    """Redirect the descriptors 1 and 2."""
    saved = [os.dup(number) for number in (1, 2)]
    try:
        for number in (1, 2):
            os.dup2(into.fileno(), number)
        yield
    finally:
        for number, descriptor in enumerate(saved, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)


def _content(file: Any) -> bytes:
    file.seek(0)
    content = file.read()
    assert isinstance(content, bytes)
    return content
