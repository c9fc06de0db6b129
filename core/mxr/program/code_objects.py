"""Summarizes the code objects of a program: their ISAs and their problems."""

from __future__ import annotations

from collections import Counter

from mxr.artifact.target import GfxArch
from mxr.program.bundle import MAX_INFLATED_BYTES, read_code_object
from mxr.program.description import Basis, Certainty
from mxr.program.elf import Allowance
from mxr.program.isa import can_intersect
from mxr.program.messagepack import Binary
from mxr.program.source import BytesSource, Source, SplicedSource

_READ_WHOLE = 1 << 20
"""Bytes up to which a code object is read at once."""
_MAX_ISA_SETS, _MAX_PROBLEMS = 256, 8


class CodeObjects:
    """Reads code objects one by one and keeps only their summary."""

    def __init__(self, source: Source, file_size: int) -> None:
        self._source = source
        self._allowance = Allowance(notes=file_size + (1 << 20), inflated=MAX_INFLATED_BYTES)
        self._isa_sets: Counter[frozenset[GfxArch]] = Counter()
        self._packings: Counter[str] = Counter()
        self._confirmed = 0
        self.count = self.bytes = self.mlir = self.unread = 0
        self.problems: Counter[str] = Counter()

    def add(self, binary: Binary, symbol: str) -> None:
        """Read one code object, which contains the kernel `symbol`."""
        self.count += 1
        self.bytes += binary.size
        self.mlir += symbol.startswith("mlir_")
        found = read_code_object(self._view(binary), self._allowance)
        self._packings[found.packing] += 1
        self._confirmed += found.confirmed
        self.unread += found.unread
        if found.isas and (found.isas in self._isa_sets or len(self._isa_sets) < _MAX_ISA_SETS):
            self._isa_sets[found.isas] += 1
        if found.problem and (found.problem in self.problems or len(self.problems) < _MAX_PROBLEMS):
            self.problems[found.problem] += 1

    def _view(self, binary: Binary) -> Source:
        if len(binary.spans) == 1 and binary.size <= _READ_WHOLE:
            return BytesSource(self._source.read_at(*binary.spans[0]))
        return SplicedSource(self._source, binary.spans)

    def archs(self) -> tuple[str, ...]:
        """The ISAs of all code objects, sorted."""
        return tuple(sorted({str(isa) for isas in self._isa_sets for isa in isas}))

    def are_mixed(self) -> bool:
        """Whether no single device can load all code objects."""
        return not can_intersect(self._isa_sets)

    def ground(self) -> Basis:
        """How certain the archs are, and why."""
        known = sum(self._isa_sets.values())
        if not known:
            return Basis(Certainty.UNKNOWN, f"{_counted(self.count)}, none with a readable ISA")
        packed = ", ".join(name for name, _ in self._packings.most_common() if name not in ("ELF", "unknown"))
        text = f"ELF flags of {_counted(known)}" + (f" ({packed})" if packed else "")
        text += f", {self._confirmed} confirmed by a second source" if self._confirmed else ""
        certain = known == self.count and not self.problems
        return Basis(Certainty.CERTAIN if certain else Certainty.STRONG, text)

    def warnings(self) -> list[str]:
        """The problems of the code objects, as sentences."""
        found = [f"{_counted(count).capitalize()} {problem}." for problem, count in self.problems.items()]
        if self.are_mixed():
            found.append(f"No single device can run all code objects: they are for {', '.join(self.archs())}.")
        return found


def _counted(count: int) -> str:
    return "1 code object" if count == 1 else f"{count} code objects"
