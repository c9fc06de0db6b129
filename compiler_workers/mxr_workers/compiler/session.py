"""The one file that imports onnxruntime: a session by its MIGraphX provider, which writes files, or loads them."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

from .library import numpy
from .report import ChildRefusal, ChildReport
from .values import made_up

PROVIDER = "MIGraphXExecutionProvider"
LIBRARY = "libonnxruntime_providers_migraphx.so"
LEVELS = {"all": "ORT_ENABLE_ALL", "basic": "ORT_ENABLE_BASIC", "disable": "ORT_DISABLE_ALL"}
TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(bool)": "bool"}
TYPES.update({f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)})

UNFIT = ("InvalidGraph", "InvalidProtobuf", "NotImplemented")
"""Errors of ONNX Runtime that are the model's own, and come again wherever it is opened.
Source: microsoft/onnxruntime, onnxruntime/python/onnxruntime_pybind_exceptions.cc."""

RELU = bytes.fromhex(
    "080712003a330a0c0a0178120179220452656c751201675a0f0a0178120a0a08"
    "080112040a020802620f0a0179120a0a08080112040a02080242040a00100d"
)
"""An ONNX file: y = Relu(x), two floats."""


def runtime(_: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """Which ONNX Runtime this interpreter has, once its MIGraphX provider has compiled and run a Relu.

    Raises `Refused` named `no-onnxruntime` where there is none with that provider.
    """
    library = _library()
    if library is None:
        raise ChildRefusal(
            "permanent", "no-onnxruntime", f"{sys.executable} has no ONNX Runtime with a MIGraphX provider."
        )
    found, np = _onnxruntime(), numpy()
    report.phase("run")
    _session(found, RELU, found.SessionOptions(), {}).run(None, {"x": np.array([-1, 2], "float32")})
    return {"library": str(library), "version": found.__version__}


def run(order: dict[str, Any], report: ChildReport) -> dict[str, Any]:
    """Do the order `{"model","bytes","level","options","inputs","seed","phase"}`: open a session, run it twice, the
    second time timed. The folder of the files stands among the provider's options.

    A model that wants types which numpy has not is opened and not run: `ran` is False and `unrun` names them.
    """
    found, np = _onnxruntime(), numpy()
    settings = found.SessionOptions()
    settings.graph_optimization_level = getattr(found.GraphOptimizationLevel, LEVELS[order["level"]])
    model = order["model"]
    if order["bytes"]:
        model = Path(model).read_bytes()
    report.phase(order["phase"])
    session = _session(found, model, settings, order["options"])
    told: dict[str, Any] = {"onnxruntime": found.__version__, "seconds": report.seconds}
    inputs = {each.name: each for each in session.get_inputs()}
    told["unrun"] = sorted({each.type for each in inputs.values()} - set(TYPES))
    if told["unrun"]:
        return dict(told, ran=False, finite=None, latency_ms=None)
    random = np.random.default_rng(order["seed"])
    values = {name: made_up(np, random, order["inputs"][name], TYPES[inputs[name].type]) for name in sorted(inputs)}
    report.phase("run")
    session.run(None, values)
    start = time.perf_counter()
    outputs = session.run(None, values)
    latency = (time.perf_counter() - start) * 1000
    report.phase("end")
    arrays = [each for each in outputs if isinstance(each, np.ndarray) and each.dtype.kind == "f"]
    finite = all(bool(np.isfinite(each).all()) for each in arrays)
    return dict(told, ran=True, finite=finite, latency_ms=round(latency, 3))


def _onnxruntime() -> Any:
    """The onnxruntime module. Raises `Refused` where it does not load."""
    try:
        import onnxruntime  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise ChildRefusal(
            "transient", "no-onnxruntime", f"{sys.executable} has no onnxruntime that loads: {error}."
        ) from error
    return onnxruntime


def _library() -> Path | None:
    """The provider's library, found without importing anything; None where there is none."""
    spec = importlib.util.find_spec("onnxruntime")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder, "capi", LIBRARY)
        if path.is_file():
            return path
    return None


def _session(found: Any, model: Any, settings: Any, options: dict[str, str]) -> Any:
    """A session in which MIGraphX takes what it can, and the CPU the rest.

    Without the fall-back of the Python module, which would open it once more on the CPU alone whatever went wrong, and
    hide why. Source: microsoft/onnxruntime, onnxruntime/python/onnxruntime_inference_collection.py.
    """
    providers = [(PROVIDER, options), "CPUExecutionProvider"]
    try:
        session = found.InferenceSession(model, settings, providers=providers, enable_fallback=0)
    except Exception as error:
        if type(error).__name__ in UNFIT:
            raise ChildRefusal("permanent", "unfit-model", str(error)) from error
        raise
    if PROVIDER not in session.get_providers():
        raise ChildRefusal(
            "transient", "no-provider", "ONNX Runtime fell back to the CPU: its MIGraphX provider did not start."
        )
    return session
