"""The name of the file that ONNX Runtime's provider will ask for, told beforehand; or why it cannot be."""

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
from .optimiser import LEVELS, OptimisedGraph, Optimiser, look, started
from .partition import obstacle
from .unpredictable import PredictionRefused, Unpredictable


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """What is asked: the model, how it will be opened, and the contract.

    `file_name` is how the ONNX file will be called where it serves; None for a session made from bytes. `arch` is HIP's
    gcnArchName in full. `level` is the session's optimisation level, one of `optimiser.LEVELS`.
    """

    model: Path
    contract: Contract
    arch: str
    file_name: str | None
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    level: str = "all"
    python: str = sys.executable


def predict(question: PredictionRequest) -> PredictedName | Unpredictable:
    """The one name. Raises `Usage` and `Damaged` as reading the model does."""
    try:
        check(question)
        with started(question.python) as optimiser:
            return ask(question, optimiser)
    except PredictionRefused as refused:
        return refused.answer


def predict_all(questions: list[PredictionRequest]) -> list[PredictedName | Unpredictable]:
    """The names of several, with one child interpreter for all of them."""
    answers = list[PredictedName | Unpredictable]()
    with started(questions[0].python) as optimiser:
        for question in questions:
            try:
                check(question)
                answers.append(ask(question, optimiser))
            except PredictionRefused as refused:
                answers.append(refused.answer)
    return answers


def check(question: PredictionRequest) -> None:
    """Raises `Refused` for what needs no look at the graph."""
    if question.contract.generation == "A":
        raise PredictionRefused("this ONNX Runtime hashes nothing: it loads the path that it is given")
    if question.contract.provider is None:
        raise PredictionRefused(
            "the MIGraphX version that the provider was built with is not known", "Say --ort-migraphx 2.15.0."
        )
    if question.level not in LEVELS:
        raise PredictionRefused(
            f"there is no optimisation level {question.level!r}", f"Levels are {', '.join(LEVELS)}."
        )


def ask(question: PredictionRequest, optimiser: Optimiser) -> PredictedName:
    """The name, with an optimiser that runs already. Raises `Refused`."""
    wanted = question.contract.version
    if wanted is not None and _short(optimiser.version) != _short(wanted):
        raise PredictionRefused(
            f"{question.python} has ONNX Runtime {optimiser.version}, and {wanted} will serve",
            f"Name an interpreter that has {wanted}: --ort-python PATH.",
        )
    seen, types = observe(question.model, optimiser, question.level)
    if reason := obstacle(seen.graph, types):
        raise PredictionRefused(reason)
    provider = question.contract.provider or ""
    deployment = Deployment(question.file_name, provider, question.arch, question.inputs)
    return _named(question.contract.generation, seen.graph, deployment)


def observe(model: Path, optimiser: Optimiser, level: str) -> tuple[OptimisedGraph, frozenset[str]]:
    """The graph of the ONNX file as a provider sees it, and the element types in it. Raises `Refused`."""
    read = read_model(model)
    try:
        original = read_graph(model)
        types = read.types or frozenset()
        if any(attribute.graph for node in original.nodes for attribute in node.attributes.values()):
            raise PredictionRefused("it has graphs within nodes (If, Loop, Scan), which the provider does not take")
        return look(model, original, types, optimiser, level), types
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
