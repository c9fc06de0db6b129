"""Known failures of MIGraphX while it compiles a model and saves the program."""

from __future__ import annotations

from mxr.known_failures.fragments import FILE
from mxr.known_failures.record import KnownFailure

MIGRAPHX_COMPILES: tuple[KnownFailure, ...] = (
    KnownFailure(
        name="too-few-cus",
        who="migraphx",
        kind="permanent",
        level="cause",
        needles=(b"cannot be lower than arch minnumcu",),
        pattern=(
            r"num_cu ?= ?(?P<here>\d{1,6})(?: : i\d{1,3})? "
            r"cannot be lower than arch minnumcu ?= ?(?P<least>\d{1,6})"
        ),
        means=(
            "rocMLIR in this MIGraphX rejects GPUs of this architecture that have fewer than {least} CUs, and it "
            "counts {here} on this GPU (half of what rocminfo prints on RDNA). This affects small APUs and "
            "partitions of large GPUs."
        ),
        fix=(
            "A later MIGraphX may have a lower limit. Otherwise do not partition the GPU (SPX mode), or put "
            "MIGRAPHX_DISABLE_MLIR=1 into the key: `mxr fetch MODEL --env MIGRAPHX_DISABLE_MLIR=1 --on-miss ask`."
        ),
        source="ROCm/rocMLIR getNumCU; issues 1673, 1927, 2197; ROCm/AMDMIGraphX issue 4196",
        covers=("mlir",),
    ),
    KnownFailure(
        name="no-tuned-kernel",
        who="migraphx",
        kind="permanent",
        level="cause",
        needles=(
            b"no valid tuned compilation",
            b"no configs to tune",
            b"no solutions provided for",
            b"gpu::tuning_config",
        ),
        pattern=(
            r"no valid tuned compilation|no configs to tune|no solutions provided for (?P<op>[\w:]{1,80})|"
            r"gpu::tuning_config.{0,600}?assertion '"
        ),
        means=(
            "MIGraphX could not build a kernel for one operator of the model on this GPU. This MIGraphX release "
            "fails on it every time."
        ),
        fix=(
            "Compile with another MIGraphX release, or for a gpu::mlir_op run `mxr fetch MODEL --env "
            "MIGRAPHX_DISABLE_MLIR=1 --on-miss ask`. Report the model to ROCm/AMDMIGraphX."
        ),
        source=(
            "MIGraphX src/targets/gpu/compile_ops.cpp; pnikolic-amd/ComfyUI_MIGraphX issue 11; ROCm/AMDMIGraphX "
            "3033, 4319"
        ),
    ),
    KnownFailure(
        name="mlir",
        who="migraphx",
        kind="permanent",
        level="cause",
        needles=(b"invalid mlir created", b"mlir backend compilation failed", b"failed to compile mlir program"),
        pattern=(
            r"(?:invalid mlir created|mlir backend compilation failed|failed to compile mlir program)(?:: "
            r"(?P<why>.{1,160}))?"
        ),
        means="rocMLIR cannot compile a part of the model for this GPU ({why}). It fails every time.",
        fix=(
            "Compile with another MIGraphX release, or with `mxr fetch MODEL --env MIGRAPHX_DISABLE_MLIR=1 "
            "--on-miss ask`."
        ),
        source="MIGraphX src/targets/gpu/mlir.cpp",
    ),
    KnownFailure(
        name="hiprtc",
        who="migraphx",
        kind="permanent",
        level="cause",
        needles=(b"hiprtc_error_", b"hiprtc compilation failed", b"unknown hip compiler"),
        pattern=r"hiprtc_error_\w{1,60}|hiprtc compilation failed|unknown hip compiler",
        means=(
            "HIP's runtime compiler rejected a kernel. The most common cause is a mixture of libraries from two "
            "ROCm releases, for example those bundled with PyTorch."
        ),
        fix=(
            "Compile in a process that imports only migraphx (`mxr-worker` does). `mxr host` shows which ROCm is "
            "detected."
        ),
        source="MIGraphX src/targets/gpu/compile_hip.cpp; ROCm/AMDMIGraphX issues 2113 and 3487",
    ),
    KnownFailure(
        name="pool-thread",
        who="migraphx",
        kind="permanent",
        level="symptom",
        needles=(b"terminate called recursively", b"std::system_error", b"update_config"),
        pattern=(
            r"terminate called recursively|instance of 'std::system_error'|std::system_error|"
            r"(?:migraphx|compile_ops|what\(\)).{0,160}\bupdate_config\b"
        ),
        means=(
            "MIGraphX terminated in one of its compile threads, and the original message is lost. A retry most "
            "likely fails again."
        ),
        fix=(
            "Set MIGRAPHX_GPU_COMPILE_PARALLEL=1 to compile one kernel at a time and see the message. As a last "
            "resort run `mxr fetch MODEL --env MIGRAPHX_DISABLE_MLIR=1 --on-miss ask`."
        ),
        source="ROCm/AMDMIGraphX issues 2983, 4319 and 5254",
    ),
    KnownFailure(
        name="host-memory",
        who="migraphx",
        kind="transient",
        level="cause",
        needles=(b"std::bad_alloc", b"memoryerror"),
        pattern=r"std::bad_alloc|^memoryerror\b",
        means=(
            "The host ran out of memory, or the file is damaged and declares false sizes. A compile can need 32 "
            "GiB and more; a load needs about three times the file size."
        ),
        fix="`mxr inspect FILE` shows whether the file is intact. If it is, give the process more memory.",
        source="observed by running MIGraphX 2.16; ROCm/onnxruntime pull request 227",
    ),
    KnownFailure(
        name="save-failed",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"write_buffer: failure", b"write_string: failure", b"error writing file: "),
        pattern=rf"(?:write\w{{0,20}}: failure opening file|error writing file): {FILE}",
        means="MIGraphX cannot write `{file}`: the folder does not exist or is not writable, or the disk is full.",
        fix="Create the folder with `mkdir -p`, check free space with `df`, and run it again.",
        source="MIGraphX src/file_buffer.cpp, write_buffer; run",
        covers=("file-missing",),
    ),
)
