"""Known failures of ONNX Runtime and its MIGraphX providers."""

from __future__ import annotations

from mxr.known_failures.fragments import FILE, ORT_NAME
from mxr.known_failures.record import KnownFailure

ONNXRUNTIME: tuple[KnownFailure, ...] = (
    KnownFailure(
        name="ort-cache-dir-unset",
        who="onnxruntime",
        kind="usage",
        level="cause",
        needles=(b"write_buffer: failure",),
        pattern=rf"write\w{{0,20}}: failure opening file: (?:[\"']{{2}}/?|/|[\"']/?)?{ORT_NAME}",
        means=(
            "ONNX Runtime tries to save its compiled model but has no cache folder: the cache variable that this "
            "build reads is not set. Builds differ in the name of that variable."
        ),
        fix=(
            "Set both ORT_MIGRAPHX_MODEL_CACHE_PATH and ORT_MIGRAPHX_CACHE_PATH (the plugin provider reads "
            "ORT_MIGRAPHX_CACHE_DIR) to a persistent folder that only this model, size and precision use."
        ),
        source="microsoft/onnxruntime migraphx_execution_provider.cc of 1.23 and later",
        covers=("save-failed", "file-missing", "ort-cache-dir-missing", "ort-cache-miss"),
    ),
    KnownFailure(
        name="ort-cache-dir-missing",
        who="onnxruntime",
        kind="usage",
        level="cause",
        needles=(b"write_buffer: failure",),
        pattern=rf"write\w{{0,20}}: failure opening file: [\"']{{0,2}}(?P<folder>[^\"']{{1,300}}?)/{ORT_NAME}",
        means=(
            "ONNX Runtime cannot save its compiled model in `{folder}`: it does not create that folder, and "
            "stops when it cannot write to it."
        ),
        fix="Run `mkdir -p {folder}` and make the folder writable. Use one folder per model, size and precision.",
        source="microsoft/onnxruntime migraphx_execution_provider.cc; observed with ONNX Runtime 1.27.1",
        covers=("save-failed", "file-missing", "ort-cache-miss"),
    ),
    KnownFailure(
        name="ort-cache-miss",
        who="onnxruntime",
        kind="warning",
        level="note",
        needles=(b"failure opening file",),
        pattern=rf"failure opening file: .{{0,300}}?(?P<file>{ORT_NAME})",
        means=(
            "This is not a failure: ONNX Runtime did not find {file} in its cache and compiles the model now, "
            "which can take minutes to hours."
        ),
        fix=(
            "Run it once where time does not matter and keep that cache folder. Use one folder per model, size "
            "and precision."
        ),
        source="ROCm/AMDMIGraphX pull request 3473",
        covers=("file-missing",),
    ),
    KnownFailure(
        name="ort-option",
        who="onnxruntime",
        kind="usage",
        level="cause",
        needles=(b"invalid migraphx ep option", b"unknown provider option"),
        pattern=r"(?:invalid migraphx ep option: |unknown provider option: )[\"']?(?P<option>[\w.]{1,80})",
        means=(
            "This build of ONNX Runtime has no MIGraphX option `{option}`, even if the documentation names it. "
            "In Python, ONNX Runtime then falls back to the CPU."
        ),
        fix=(
            "Remove the option. For the cache, set ORT_MIGRAPHX_MODEL_CACHE_PATH (plugin provider: option "
            "`cache_dir`). Check `session.get_providers()`."
        ),
        source="microsoft/onnxruntime issue 25379",
    ),
    KnownFailure(
        name="ort-provider-missing",
        who="onnxruntime",
        kind="usage",
        level="cause",
        needles=(b"specified provider 'migraphx",),
        pattern=r"specified provider 'migraphxexecutionprovider' is not in available provider names",
        means="This ONNX Runtime was built without MIGraphX and runs on the CPU.",
        fix="Install AMD's build (`onnxruntime-migraphx`) and uninstall the plain `onnxruntime` package.",
        source="microsoft/onnxruntime onnxruntime_inference_collection.py",
    ),
    KnownFailure(
        name="ort-on-cpu",
        who="onnxruntime",
        kind="warning",
        level="catch-all",
        needles=(b"falling back to [",),
        pattern=r"falling back to \[(?P<providers>[^\]]{0,200})\] and retrying",
        means="ONNX Runtime could not use MIGraphX and continues with {providers}: results are correct but slow.",
        fix="Read the error before this line, and check `session.get_providers()` after creating the session.",
        source="microsoft/onnxruntime onnxruntime_inference_collection.py",
    ),
    KnownFailure(
        name="epcontext-arch",
        who="onnxruntime",
        kind="mismatch",
        level="cause",
        needles=(b"ep context binary was compiled for gpu",),
        pattern=(
            r"ep context binary was compiled for gpu architecture '(?P<made>[^']{1,80})' but current gpu is "
            r"'(?P<here>[^']{1,80})'"
        ),
        means=(
            "The EPContext model was compiled for {made}, and this GPU is {here}. The two strings must be identical."
        ),
        fix=(
            "Create the EPContext model again on {here} (session option `ep.context_enable`). Each GPU "
            "architecture needs its own."
        ),
        source="onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep_ctx.cc",
    ),
    KnownFailure(
        name="epcontext-sdk",
        who="onnxruntime",
        kind="mismatch",
        level="cause",
        needles=(b"ep context binary was compiled with migraphx",),
        pattern=(
            r"ep context binary was compiled with migraphx sdk (?P<made>[\w.+-]{1,40}) but current sdk is "
            r"(?P<here>[\w.+-]{1,40}?)\.? "
        ),
        means=(
            "The EPContext model was compiled with MIGraphX {made}, and the installed version is {here}. The "
            "provider rejects a different major release."
        ),
        fix="Create the EPContext model again with the installed MIGraphX (session option `ep.context_enable`).",
        source="onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep_ctx.cc",
    ),
    KnownFailure(
        name="epcontext-path",
        who="onnxruntime",
        kind="usage",
        level="cause",
        needles=(b"ep_cache_context",),
        pattern=r"for security purpose, the .{0,60}?ep_cache_context.{0,60}?must (?:contain a relative|not include)",
        means=(
            "The EPContext model names its .mxr file by an absolute path or by a path with `..`. Only a name "
            "inside the model's folder is accepted."
        ),
        fix="Put the .mxr file next to the model and name it without a folder.",
        source="onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep_ctx.cc",
        covers=("epcontext-attribute",),
    ),
    KnownFailure(
        name="epcontext-file",
        who="onnxruntime",
        kind="usage",
        level="cause",
        needles=(b"the mxr cache file does not exist",),
        pattern=rf"the mxr cache file does not exist: {FILE}",
        means=(
            "The EPContext model needs `{file}`, which does not exist. The model and its .mxr file must be "
            "copied together."
        ),
        fix=(
            "Restore the file, or create both again (session option `ep.context_enable`). If `cache_dir` is set, "
            "the provider looks for the file there."
        ),
        source="onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep_ctx.cc",
    ),
    KnownFailure(
        name="epcontext-load",
        who="onnxruntime",
        kind="mismatch",
        level="symptom",
        needles=(b"loading mxr file failed", b"loading embedded mxr binary failed"),
        pattern=r"loading (?:mxr file|embedded mxr binary) failed: (?P<file>[^\s\"]{1,300})?",
        means=(
            "MIGraphX rejected the .mxr file of an EPContext model, and the provider does not report the reason: "
            "a different format version, a different GPU, or damage. With embedded files, two processes may have "
            "overwritten each other's temporary file."
        ),
        fix=(
            "`mxr check FILE` on that .mxr file shows the reason. Prefer a file next to the model to an embedded one."
        ),
        source="onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep_ctx.cc",
    ),
    KnownFailure(
        name="epcontext-no-provider",
        who="onnxruntime",
        kind="usage",
        level="cause",
        needles=(b"is not compatible with any execution provider", b"no epcontext node found for migraphx"),
        pattern=(
            r"epcontext node generated by '?(?P<by>[^']{0,80})'? is not compatible with any execution provider|"
            r"no epcontext node found for migraphx"
        ),
        means=(
            "No provider in this session accepts the EPContext model. ONNX Runtime's built-in MIGraphX provider "
            "(up to 1.27) does not support EPContext models; the plugin provider supports those that MIGraphX "
            "created."
        ),
        fix="Load the plugin provider, or use the plain ONNX model.",
        source="onnxruntime/onnxruntime-ep-amdgpu; observed with ONNX Runtime 1.27.1",
    ),
    KnownFailure(
        name="epcontext-attribute",
        who="onnxruntime",
        kind="damaged",
        level="cause",
        needles=(b"`embed_mode` attribute", b"ep_cache_context"),
        pattern=(
            r"`embed_mode` attribute must be|`ep_cache_context` attribute must be|ep_cache_context is empty for "
            r"embed_mode"
        ),
        means="The EPContext node of the model is invalid: an attribute is missing, empty or of the wrong type.",
        fix="Create the EPContext model again (session option `ep.context_enable`).",
        source="onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep_ctx.cc",
    ),
    KnownFailure(
        name="epcontext-dynamic",
        who="onnxruntime",
        kind="usage",
        level="cause",
        needles=(b"ep.context_enable is set but",),
        pattern=r"ep\.context_enable is set but the graph has dynamic input shapes",
        means="An EPContext model requires a model in which every shape is fixed.",
        fix="Fix every dimension in the ONNX model first: one model per batch size.",
        source="onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep.cc",
    ),
    KnownFailure(
        name="ort-name-zero",
        who="onnxruntime",
        kind="warning",
        level="note",
        needles=(b"-0.mxr",),
        pattern=r"\b(?P<file>[0-9a-f]{4,8}(?:-[0-9a-f]{1,16}){2,3}-0\.mxr)",
        means=(
            "ONNX Runtime gives the name {file} to the first shape of any model with dynamic dimensions. The "
            "file may hold a program for other shapes, and ONNX Runtime does not check it."
        ),
        fix="Move the file away and fix the shapes in the ONNX model: one model and one cache folder per batch size.",
        source="observed with ONNX Runtime 1.27.1; ROCm/onnxruntime pull request 235",
    ),
    KnownFailure(
        name="ort-name-collision",
        who="onnxruntime",
        kind="warning",
        level="note",
        needles=(
            b"-519c70b1cf0f20ca.mxr",
            b"-10ac3d27e86223a7.mxr",
            b"-be2deffdcd788822.mxr",
            b"-47afe3195360aea.mxr",
            b"-36a8840bfe2de0d1.mxr",
        ),
        pattern=r"(?P<file>[0-9a-f]{4,8}(?:-[0-9a-f]{1,16}){3}\.mxr)",
        means=(
            "{file} was named by an ONNX Runtime that hashes only a part of the shape: every size with the same "
            "batch size and rank gets this name. The name does not include weights or precision either."
        ),
        fix="Never share this folder between models, sizes or precisions. Use one folder for each.",
        source="ROCm/onnxruntime pull requests 235, 237, 245, 246; microsoft/winml-cli issue 1300",
    ),
    KnownFailure(
        name="ort-compiling",
        who="onnxruntime",
        kind="warning",
        level="note",
        needles=(b"model compile: begin",),
        pattern=r"model compile: begin",
        means=(
            "ONNX Runtime is compiling and had not finished when this log ended. This looks like a hang, keeps "
            "all cores busy, and can take minutes to hours."
        ),
        fix="Let it run, increase the time limits, and keep its cache folder for the next start.",
        source="ROCm/AMDMIGraphX issues 4029 and 4164",
        unless=b"model compile: complete",
    ),
    KnownFailure(
        name="ort-status",
        who="onnxruntime",
        kind="permanent",
        level="catch-all",
        needles=(b"non-zero status code returned while running mgx",),
        pattern=r"non-zero status code returned while running (?P<node>mgx\w{0,160}) node",
        means=(
            "The MIGraphX provider of ONNX Runtime failed during a run; its status contains no further information."
        ),
        fix=(
            "Look for MIGraphX's own message before it on standard error. `mxr check FILE` on the cached .mxr "
            "file compares it with this GPU."
        ),
        source="microsoft/onnxruntime; ROCm/AMDMIGraphX issue 4141",
        covers=("failed-to-call",),
    ),
)
