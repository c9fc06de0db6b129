"""The folder for ONNX Runtime: the programs under the names its provider requests, and a record of each name.

Each model and set of options has a folder of its own. The file names depend neither on weights nor on precision, so two
programs that differ only in those would be loaded for each other if they shared a folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from mxr.artifact.key import Key
from mxr.consumers.layout import Delivery, Layout, LayoutFile, whole_arch, written
from mxr.display.text import python_quoted, shell_quoted
from mxr.errors import UsageError
from mxr.util.codec import canonical

from .contract import Contract
from .options import OrtSessionOptions
from .prediction import PredictedName, PredictionRequest, Unpredictable, predict
from .requirements import WHO, check_key

RECORDS = ".mxr-names"
"""The folder beside the programs that holds one record for each."""

FILE_OF_A = "compiled_model.mxr"


def lay_out(delivery: Delivery) -> Layout:
    """The layout of one program. Raises `UsageError` with the reason and what to do if its name cannot be predicted."""
    check_key(delivery.key)
    options = OrtSessionOptions.read(delivery.consumer_options)
    contract = options.contract()
    home = folder_name(delivery.stem, delivery.key)
    if contract.generation == "A":
        return _layout_of_a(delivery, contract, home)
    if delivery.model is None:
        raise UsageError(
            f"{WHO}'s file names depend on the model itself.", hint="Give the ONNX file instead of its hash."
        )
    request = prediction_request_of(delivery, contract, options)
    name = predict(request)
    if isinstance(name, Unpredictable):
        raise unpredictable(delivery.model.name, name, contract)
    return Layout(
        pieces=(
            written(f"{home}/{RECORDS}/{name.file}.json", name_record(name, delivery, contract, request.file_name)),
            LayoutFile(f"{home}/{name.file}", delivery.program),
        ),
        path=home,
        settings=settings(contract.generation, str(delivery.folder / home), delivery.key),
        notes=(*contract.notes, _opened(request.file_name)),
    )


def unpredictable(model: str, found: Unpredictable, contract: Contract) -> UsageError:
    """The error for a model whose file name cannot be predicted."""
    return UsageError(
        f"The file name for {model} cannot be predicted: {found.reason}.",
        hint=found.hint,
        context={"reason": found.reason, "generation": contract.generation},
    )


def prediction_request_of(delivery: Delivery, contract: Contract, options: OrtSessionOptions) -> PredictionRequest:
    """What to predict for a delivery. Raises `UsageError` if the full name of the GPU is unknown."""
    assert delivery.model is not None
    arch = whole_arch(delivery, WHO)
    return prediction_request(delivery.model, delivery.stem, arch, contract=contract, options=options)


def prediction_request(
    model: Path, stem: str, arch: str, *, contract: Contract, options: OrtSessionOptions
) -> PredictionRequest:
    """What to predict for a model that is called `stem` on the host that serves it; `arch` is the GPU's full name."""
    return PredictionRequest(
        model=model,
        contract=contract,
        arch=arch,
        file_name=None if options.from_bytes else f"{stem}{model.suffix}",
        level=options.level,
        python=options.python,
    )


def folder_name(stem: str, key: Key) -> str:
    """The folder for this model and these options; all batch sizes of one model share it."""
    document = {name: value for name, value in key.to_json().items() if name not in ("inputs", "form")}
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", stem)[:60].lstrip(".") or "model"
    return f"{plain}-{sha256(canonical(document).encode()).hexdigest()[:16]}"


def name_record(name: PredictedName, delivery: Delivery, contract: Contract, file_name: str | None) -> str:
    """The record of a name: what was hashed for it. `verification` compares it with a name the provider requests."""
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
    """The lines that make the provider read `folder`, and compile with the same precision if it has to compile."""
    precisions = _precisions(key)
    if generation == "D":
        more = [f"ORT_MIGRAPHX_{word.upper()}_ENABLE=1" for word in precisions]
        option = f"ep.migraphxexecutionprovider.cache_dir={shell_quoted(folder)}"
        return (f"ORT_MIGRAPHX_CACHE_DIR={shell_quoted(folder)}", *more, f"or by session configuration: {option}")
    lines = [f"{name}={shell_quoted(value)}" for name, value in variables(generation, folder, key).items()]
    options = provider_options(folder, precisions)
    shown = ", ".join(f'"{name}": {python_quoted(value)}' for name, value in options.items())
    return (*lines, f"or by provider options: {{{shown}}}")


def variables(generation: str, folder: str, key: Key) -> Mapping[str, str]:
    """The environment variables that `settings` stands for, for the providers of generations B and C."""
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
    """The provider options of generations B and C."""
    return {"migraphx_model_cache_dir": folder} | {f"migraphx_{word}_enable": "1" for word in precisions}


def _layout_of_a(delivery: Delivery, contract: Contract, home: str) -> Layout:
    file = f"{home}/{FILE_OF_A}"
    return Layout(
        pieces=(LayoutFile(file, delivery.program),),
        path=file,
        settings=settings_of_a(str(delivery.folder / file)),
        notes=(*contract.notes, "It loads this file for every model and every shape: use it for this model only."),
    )


def _opened(file_name: str | None) -> str:
    if file_name is None:
        return "The name is valid for a session that is created from bytes, not from a file."
    return f"The name is valid for a model that is opened from a file called {Path(file_name).name}."


def settings_of_a(path: str) -> tuple[str, ...]:
    """The settings with which ONNX Runtime 1.19 to 1.22 loads `path` and never writes it; it hashes and checks nothing.

    Two names of the path variable occur in releases and documents. Source: microsoft/onnxruntime v1.19 to v1.22,
    onnxruntime/core/providers/migraphx. Derived from the source, not tested with this provider.
    """
    return (
        "ORT_MIGRAPHX_LOAD_COMPILED_MODEL=1",
        f"ORT_MIGRAPHX_LOAD_COMPILE_PATH={shell_quoted(path)}",
        f"ORT_MIGRAPHX_LOAD_COMPILED_PATH={shell_quoted(path)}",
        "ORT_MIGRAPHX_SAVE_COMPILED_MODEL=0",
    )
