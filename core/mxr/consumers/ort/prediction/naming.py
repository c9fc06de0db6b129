"""Predicts the name of the file that ONNX Runtime's provider will request, or says why it cannot be predicted."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mxr.consumers.ort.contract import Contract
from mxr.consumers.ort.options import LEVELS
from mxr.onnxfile import read_model
from mxr.onnxfile.protobuf import MalformedProtobuf

from . import generation_b
from .graph import read_graph
from .name_fields import Deployment, PredictedName
from .optimizer import OptimizedGraph, Optimizer, look, started
from .refusal import PredictionRefused, Unpredictable
from .subgraphs import obstacle


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """The model, how it will be opened, and the naming contract.

    `file_name` is the name of the ONNX file on the host that serves it; None for a session that is created from bytes.
    `arch` is HIP's full gcnArchName. `level` is the optimization level of the session, one of `LEVELS`.
    """

    model: Path
    contract: Contract
    arch: str
    file_name: str | None
    level: str = "all"
    python: str = sys.executable


def predict(request: PredictionRequest) -> PredictedName | Unpredictable:
    """Predict one name. Raises `UsageError` or `DamagedError` if the model cannot be read."""
    try:
        check_predictable(request)
        with started(request.python) as optimizer:
            return predict_with(optimizer, request)
    except PredictionRefused as refused:
        return refused.answer


def unknown_names(contract: Contract) -> Unpredictable | None:
    """Return why no name of a generation can be predicted, whatever the model; None for A and B."""
    if contract.generation in ("A", "B"):
        return None
    return Unpredictable(
        f"the names of generation {contract.generation} of ONNX Runtime's provider are known to that provider only",
        "Use the files that the provider itself writes: add --on-miss wait, so that a worker records them "
        "(generation C), or publish them from a host that ran the model: mxr import --ort-cache DIR.",
    )


def check_predictable(request: PredictionRequest) -> None:
    """Raise `PredictionRefused` for the reasons that do not depend on the graph."""
    if request.contract.generation == "A":
        raise PredictionRefused("this ONNX Runtime hashes nothing: it loads the path that it is given")
    if unknown := unknown_names(request.contract):
        raise PredictionRefused(unknown.reason, unknown.hint)
    if request.contract.provider is None:
        raise PredictionRefused(
            "the MIGraphX version that the provider was built with is unknown", "Add --ort-migraphx 2.15.0."
        )
    if request.level not in LEVELS:
        raise PredictionRefused(
            f"{request.level!r} is not an optimization level", f"Use one of these levels: {', '.join(LEVELS)}."
        )


def predict_with(optimizer: Optimizer, request: PredictionRequest) -> PredictedName:
    """Predict a name with an optimizer that is already running. Raises `PredictionRefused`."""
    wanted = request.contract.version
    if wanted is not None and _short(optimizer.version) != _short(wanted):
        raise PredictionRefused(
            f"{request.python} has ONNX Runtime {optimizer.version}, but {wanted} will serve the model",
            f"Name an interpreter that has {wanted}: --ort-python PATH.",
        )
    seen, types = observe(request.model, optimizer, request.level)
    if reason := obstacle(seen.graph, types):
        raise PredictionRefused(reason)
    provider = request.contract.provider or ""
    return generation_b.name(seen.graph, Deployment(request.file_name, provider, request.arch))


def observe(model: Path, optimizer: Optimizer, level: str) -> tuple[OptimizedGraph, frozenset[str]]:
    """The graph of the ONNX file as a provider receives it, and its element types. Raises `PredictionRefused`."""
    read = read_model(model)
    try:
        original = read_graph(model)
        types = read.types or frozenset()
        if any(attribute.graph for node in original.nodes for attribute in node.attributes.values()):
            raise PredictionRefused("it has graphs within nodes (If, Loop, Scan), which the provider does not take")
        return look(model, original, types, optimizer, level), types
    except MalformedProtobuf as broken:
        raise PredictionRefused(f"{model.name}: {broken}") from None


def _short(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:3])
