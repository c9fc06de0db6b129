"""Predicts the name of the file that ONNX Runtime's provider will request, or says why it cannot be predicted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mxr.onnxfile import read_model
from mxr.onnxfile.protobuf import MalformedProtobuf

from . import generation_b, generation_c, generation_d
from .contract import Contract
from .fields import Deployment, PredictedName
from .graph import Graph, read_graph
from .optimizer import LEVELS, OptimizedGraph, Optimizer, look, started
from .partition import obstacle
from .prediction_refusal import PredictionRefused, Unpredictable

UNPROVEN = ("B'", "C", "D")
"""Generations whose predicted names were never compared with those of the real provider. Generation B was, with
`onnxruntime-migraphx` 1.27.1. Generation A is not listed: it hashes nothing and loads the path that it is given."""


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """The model, how it will be opened, and the naming contract.

    `file_name` is the name of the ONNX file on the host that serves it; None for a session that is created from bytes.
    `arch` is HIP's full gcnArchName. `level` is the optimization level of the session, one of `optimizer.LEVELS`.
    `unproven` allows a prediction for the generations in `UNPROVEN`.
    """

    model: Path
    contract: Contract
    arch: str
    file_name: str | None
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    level: str = "all"
    python: str = sys.executable
    unproven: bool = False


def predict(request: PredictionRequest) -> PredictedName | Unpredictable:
    """Predicts one name. Raises `UsageError` or `DamagedError` if the model cannot be read."""
    try:
        check(request)
        with started(request.python) as optimizer:
            return ask(request, optimizer)
    except PredictionRefused as refused:
        return refused.answer


def predict_all(requests: list[PredictionRequest]) -> list[PredictedName | Unpredictable]:
    """Predicts several names with one child interpreter, that of the first request."""
    answers = list[PredictedName | Unpredictable]()
    with started(requests[0].python) as optimizer:
        for request in requests:
            try:
                check(request)
                answers.append(ask(request, optimizer))
            except PredictionRefused as refused:
                answers.append(refused.answer)
    return answers


def refuse_unproven(contract: Contract, *, unproven: bool) -> None:
    """Raises `PredictionRefused` for a generation in `UNPROVEN`, unless `unproven` allows it."""
    if contract.generation in UNPROVEN and not unproven:
        raise PredictionRefused(
            f"the prediction for generation {contract.generation} of ONNX Runtime's provider was never run against "
            "that provider",
            "Use the files that the provider itself writes: add --on-miss wait, so that a worker records them "
            "(generation C), or publish them from a host that ran the model: mxr import --ort-cache DIR. To use a "
            "predicted name all the same, add --ort-predict unproven.",
        )


def check(request: PredictionRequest) -> None:
    """Raises `PredictionRefused` for the reasons that do not depend on the graph."""
    if request.contract.generation == "A":
        raise PredictionRefused("this ONNX Runtime hashes nothing: it loads the path that it is given")
    refuse_unproven(request.contract, unproven=request.unproven)
    if request.contract.provider is None:
        raise PredictionRefused(
            "the MIGraphX version that the provider was built with is unknown", "Add --ort-migraphx 2.15.0."
        )
    if request.level not in LEVELS:
        raise PredictionRefused(
            f"{request.level!r} is not an optimization level", f"Use one of these levels: {', '.join(LEVELS)}."
        )


def ask(request: PredictionRequest, optimizer: Optimizer) -> PredictedName:
    """Predicts a name with an optimizer that is already running. Raises `PredictionRefused`."""
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
    deployment = Deployment(request.file_name, provider, request.arch, request.inputs)
    return _named(request.contract.generation, seen.graph, deployment)


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


def _named(generation: str, graph: Graph, deployment: Deployment) -> PredictedName:
    if generation == "B":
        return generation_b.name(graph, deployment)
    if generation == "D":
        return generation_d.name(graph, deployment)
    return generation_c.name(graph, deployment, whole=generation == "B'")


def _short(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:3])
