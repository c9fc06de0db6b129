"""The folder for ONNX Runtime: one for each model and its options, in it the programs and a record of their names.

The names tell neither weights nor precision, so that two of them in one folder would serve for each other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from mxr.artifact.key import Key
from mxr.consumers.layout import Delivery, Layout, LayoutFile, whole_arch, written
from mxr.errors import Usage
from mxr.util.codec import canonical

from . import WHO, fit, generation_a
from .contract import Contract, choose
from .fields import PredictedName
from .prediction import PredictionRequest, predict
from .unpredictable import Unpredictable

RECORDS = ".mxr-names"
"""The folder beside the programs that holds a record of each."""


def lay_out(delivery: Delivery) -> Layout:
    """The layout. Raises `Usage` where no name can be told, with the reason and what to do."""
    fit(delivery.key)
    said = delivery.said
    contract = choose(said.get("ort"), said.get("ort_migraphx"))
    home = folder_name(delivery.stem, delivery.key)
    if contract.generation == "A":
        return _layout_of_a(delivery, contract, home)
    if delivery.model is None:
        raise Usage(f"{WHO}'s names depend on the model itself.", hint="Give the ONNX file instead of its hash.")
    question = question_of(delivery, contract)
    name = predict(question)
    if isinstance(name, Unpredictable):
        raise Usage(
            f"No name can be told for {delivery.model.name}: {name.reason}.",
            hint=name.hint,
            detail={"reason": name.reason, "generation": contract.generation},
        )
    return Layout(
        pieces=(
            written(f"{home}/{RECORDS}/{name.file}.json", record(name, delivery, contract, question.file_name)),
            LayoutFile(f"{home}/{name.file}", delivery.program),
        ),
        path=home,
        settings=settings(contract.generation, str(delivery.folder / home), delivery.key),
        notes=(*contract.notes, _opened(question.file_name)),
    )


def question_of(delivery: Delivery, contract: Contract) -> PredictionRequest:
    """What the predictor is asked for a delivery. Raises `Usage`."""
    assert delivery.model is not None
    arch = whole_arch(delivery, WHO)
    return question(delivery.model, delivery.stem, delivery.key, arch, contract=contract, said=delivery.said)


def question(
    model: Path, stem: str, key: Key, arch: str, *, contract: Contract, said: Mapping[str, str]
) -> PredictionRequest:
    """What the predictor is asked for a model that is called `stem` where it serves. For the rest see `Delivery`."""
    return PredictionRequest(
        model=model,
        contract=contract,
        arch=arch,
        file_name=None if said.get("ort_bytes") else f"{stem}{model.suffix}",
        inputs={name: tuple(dim for dim in shape if isinstance(dim, int)) for name, shape in key.inputs},
        level=said.get("ort_level") or "all",
        python=said.get("ort_python") or sys.executable,
    )


def folder_name(stem: str, key: Key) -> str:
    """A folder for this model and these options; the batches of one model share it."""
    document = {name: value for name, value in key.to_json().items() if name not in ("inputs", "form")}
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", stem)[:60].lstrip(".") or "model"
    return f"{plain}-{sha256(canonical(document).encode()).hexdigest()[:16]}"


def record(name: PredictedName, delivery: Delivery, contract: Contract, file_name: str | None) -> str:
    """What was hashed for a name, kept for the day when the provider asks for another."""
    return canonical(
        {
            "v": 1,
            "file": name.file,
            "sha256": delivery.program,
            "generation": contract.generation,
            "onnxruntime": contract.version,
            "opened_as": file_name,
            "fields": dict(name.fields),
            "meant": dict(name.meant),
        }
    )


def settings(generation: str, folder: str, key: Key) -> tuple[str, ...]:
    """The lines that make the provider look there, and compile alike should it have to."""
    precisions = _precisions(key)
    if generation == "D":
        more = [f"ORT_MIGRAPHX_{word.upper()}_ENABLE=1" for word in precisions]
        option = f"ep.migraphxexecutionprovider.cache_dir={folder}"
        return (f"ORT_MIGRAPHX_CACHE_DIR={folder}", *more, f"or by session configuration: {option}")
    lines = [f"{name}={value}" for name, value in variables(generation, folder, key).items()]
    options = provider_options(folder, precisions)
    shown = ", ".join(f'"{name}": "{value}"' for name, value in options.items())
    return (*lines, f"or by provider options: {{{shown}}}")


def variables(generation: str, folder: str, key: Key) -> Mapping[str, str]:
    """The environment in which the providers of generations B and C look into `folder`, and compile alike."""
    found = {"ORT_MIGRAPHX_MODEL_CACHE_PATH": folder}
    found |= {f"ORT_MIGRAPHX_{word.upper()}_ENABLE": "1" for word in _precisions(key)}
    if generation == "C":
        batches = sorted({shape[0] for _, shape in key.inputs if shape and isinstance(shape[0], int)})
        if len(batches) == 1:
            found["ORT_MIGRAPHX_COMPILE_BATCHES"] = str(batches[0])
    return found


def _precisions(key: Key) -> list[str]:
    return [word for word in ("fp16", "bf16", "fp8", "int8") if word in key.precision]


def provider_options(folder: str, precisions: Sequence[str]) -> Mapping[str, str]:
    """The provider's options of generations B and C."""
    return {"migraphx_model_cache_dir": folder} | {f"migraphx_{word}_enable": "1" for word in precisions}


def _layout_of_a(delivery: Delivery, contract: Contract, home: str) -> Layout:
    file = f"{home}/{generation_a.FILE}"
    return Layout(
        pieces=(LayoutFile(file, delivery.program),),
        path=file,
        settings=generation_a.settings(str(delivery.folder / file)),
        notes=(*contract.notes, "It loads this file for any model and any shape: give it to this model only."),
    )


def _opened(file_name: str | None) -> str:
    if file_name is None:
        return "The name holds for a session that is made from bytes, not from a file."
    return f"The name holds for a model that is opened from a file called {Path(file_name).name}."
