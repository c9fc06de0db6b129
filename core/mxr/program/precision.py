"""Detects the reduced precisions of a program from number types, operators and kernel names."""

from __future__ import annotations

from collections.abc import Mapping

from mxr.program.description import Basis, Certainty

ORDER = ("fp16", "bf16", "int8", "fp8", "int4w")
_OF_TYPE = {"half_type": "fp16", "bf16_type": "bf16"}
_OF_OPERATOR = {
    "quantizelinear": "int8",
    "quant_dot": "int8",
    "quant_convolution": "int8",
    "quant_gemm": "int8",
    "unpack_int4": "int4w",
}
_INT8_TYPES = ("int8_type", "uint8_type")
_KERNEL_WORDS = (("unpack_int4", "int4w"), ("quant_", "int8"), ("quantizelinear", "int8"))


class PrecisionClues:
    """Collects evidence of precisions node by node."""

    __slots__ = ("_arguments", "_clues", "_types", "_weights")

    def __init__(self) -> None:
        self._clues: dict[str, tuple[Certainty, str]] = {}
        self._types: set[str] = set()
        self._weights: set[str] = set()
        self._arguments: set[str] = set()

    def see_type(self, number_type: str) -> None:
        """Record the number type of a node."""
        self._types.add(number_type)

    def see_argument(self, number_type: str) -> None:
        """Record the number type of a kernel argument."""
        self._arguments.add(number_type)

    def see_weights(self, number_type: str) -> None:
        """Record the number type of a literal."""
        self._weights.add(number_type)

    def see_operator(self, name: str, number_type: str | None) -> None:
        """Record an operator: its name without namespace, and the number type of its result."""
        precision = _OF_OPERATOR.get(name)
        if precision is None or (number_type or "").startswith("fp8"):
            return
        if name == "quantizelinear" and number_type not in _INT8_TYPES:
            return
        self._clues[precision] = (Certainty.STRONG, f"{name} operators")

    def see_kernel(self, symbol: str) -> None:
        """Record the name of a kernel, which contains the names of its fused operators."""
        for word, precision in _KERNEL_WORDS:
            if word in symbol:
                self._clues.setdefault(precision, (Certainty.HEURISTIC, "names of kernels"))
                return

    def derive(self) -> tuple[tuple[str, ...], Basis]:
        """Return the precisions in the order of `ORDER`, or fp32 if there are no others, and the basis."""
        types = self._types | self._weights | self._arguments
        found = {precision: (Certainty.CERTAIN, "number types") for precision in map(_of_type, types) if precision}
        clues = dict(self._clues)
        if "int8_type" in self._weights | self._arguments:
            clues.setdefault("int8", (Certainty.HEURISTIC, "8-bit weights or arguments of kernels"))
        if "fp8" in found and clues.get("int8", (Certainty.UNKNOWN, ""))[0] is Certainty.HEURISTIC:
            clues.pop("int8")
        found |= clues
        if not found and "float_type" in types:
            return ("fp32",), Basis(Certainty.CERTAIN, "no reduced number type in any node")
        if not found:
            return (), Basis(Certainty.UNKNOWN, "no floating-point type in any node")
        return _ordered(found)


def _of_type(number_type: str) -> str | None:
    return "fp8" if number_type.startswith("fp8") else _OF_TYPE.get(number_type)


def _ordered(found: Mapping[str, tuple[Certainty, str]]) -> tuple[tuple[str, ...], Basis]:
    names = tuple(name for name in ORDER if name in found)
    weakest = max((found[name][0] for name in names), key=list(Certainty).index)
    return names, Basis(weakest, "; ".join(f"{name} from {found[name][1]}" for name in names))
