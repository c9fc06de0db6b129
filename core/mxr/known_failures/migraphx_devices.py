"""Known failures of MIGraphX with its targets, the GPU and GPU memory."""

from __future__ import annotations

from mxr.known_failures.fragments import CHECK, GFX, RECOMPILE, REST
from mxr.known_failures.record import KnownFailure

MIGRAPHX_DEVICES: tuple[KnownFailure, ...] = (
    KnownFailure(
        name="no-target-library",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"dynamic loading or symbol lookup failed",),
        pattern=(
            r"dynamic loading or symbol lookup failed with "
            r"(?P<library>\S{0,120}libmigraphx_(?P<target>[a-z]{1,20})\.so[\w.]{0,20})"
        ),
        means=(
            "The program needs target `{target}`, but MIGraphX cannot load that target's library, {library}: it "
            "is not installed, or a ROCm library that it depends on is missing."
        ),
        fix=(
            "Install the MIGraphX package with GPU support. `ldd` on the library lists missing dependencies. "
            "`mxr host` shows what mxr detects on this host."
        ),
        source="MIGraphX src/dynamic_loader.cpp, check_load_error; run",
        covers=("dynamic-loading",),
    ),
    KnownFailure(
        name="dynamic-loading",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"dynamic loading or symbol lookup failed",),
        pattern=rf"dynamic loading or symbol lookup failed with {REST}",
        means=(
            "MIGraphX could not load one of its libraries: {why}. The usual cause is a mixture of two ROCm releases."
        ),
        fix="`ldd` on the library lists missing dependencies. `mxr host` shows the installed ROCm and MIGraphX.",
        source="MIGraphX src/dynamic_loader.cpp, check_load_error",
    ),
    KnownFailure(
        name="no-target",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"is not loaded or not supported",),
        pattern=r"requested target '(?P<target>[^']{0,40})' is not loaded or not supported",
        means="The installed MIGraphX has no target `{target}`: it was built or installed without it.",
        fix=(
            "Install the MIGraphX package that includes the target. `mxr inspect FILE` shows which target a file needs."
        ),
        source="MIGraphX src/register_target.cpp",
    ),
    KnownFailure(
        name="wrong-context",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"unexpected context type",),
        pattern=rf"unexpected context type: {REST}",
        means=(
            "The program contains operators for a target other than the one it runs on: the file mixes targets, "
            "or it is damaged."
        ),
        fix=f"`mxr inspect FILE` shows its targets. {RECOMPILE}",
        source="MIGraphX src/include/migraphx/check_context.hpp",
    ),
    KnownFailure(
        name="no-device",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"no device", b"failed to get device properties"),
        pattern=(
            r"(?:^|(?:device_name|targets)\.cpp:\d{1,6}: (?:\w{1,60}: )?|get_device_(?:id|name): )no device\.?$|"
            r"failed to get device properties"
        ),
        means=(
            "MIGraphX finds no GPU: the container has no GPU device, the user has no permission to open "
            "/dev/kfd, or a *_VISIBLE_DEVICES variable hides the GPU."
        ),
        fix=(
            "Start the container with --device=/dev/kfd --device=/dev/dri and the groups video and render. `mxr "
            "host` shows the visible GPUs."
        ),
        source="MIGraphX src/targets/gpu/device_name.cpp and context.hpp",
    ),
    KnownFailure(
        name="library-without-arch",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"trying to run a kernel for",),
        pattern=(
            rf"trying to run a kernel for {GFX % 'arch'} but migraphx was built for targets (?P<built>.{{0,200}}?)"
            r"\.? ?(?:please rebuild|$)"
        ),
        means=(
            "The MIGraphX library itself, not the .mxr file, has no kernels for this GPU ({arch}). It was built "
            "for {built}."
        ),
        fix=(
            "Install a MIGraphX package that supports {arch}, or rebuild MIGraphX with -DGPU_TARGETS={arch}. No "
            "other .mxr file solves this."
        ),
        source="MIGraphX src/targets/gpu/device/include/migraphx/gpu/device/launch.hpp",
        covers=("device-kernel",),
    ),
    KnownFailure(
        name="device-kernel",
        who="migraphx",
        kind="permanent",
        level="symptom",
        needles=(b"device kernel failed to launch",),
        pattern=rf"device kernel failed to launch with error: {REST}",
        means="A kernel of the MIGraphX library failed to launch: {why}.",
        fix=f"{CHECK} `mxr host` shows the GPU and the installed MIGraphX.",
        source="MIGraphX src/targets/gpu/device/include/migraphx/gpu/device/launch.hpp",
    ),
    KnownFailure(
        name="module-wrong-arch",
        who="migraphx",
        kind="mismatch",
        level="symptom",
        needles=(b"failed to load module: ",),
        pattern=(
            r"failed to load module: .{0,80}?(?:no kernel image|nobinaryforgpu|code object|kernel image is invalid|"
            r"invalid kernel file|invalid device|invalid ?image|shared object)"
        ),
        means=(
            "The program was compiled for a different GPU, and HIP cannot load its kernels. MIGraphX does not "
            "compare architectures at load time, so the error appears only now."
        ),
        fix=(
            "`mxr check FILE` shows both architectures. `mxr fetch MODEL --arch GFX` (on this host, without "
            "--arch) gets the right program."
        ),
        source="MIGraphX src/targets/gpu/kernel.cpp, load_module",
        covers=("module-load", "hip-no-binary", "hip-invalid-image", "hip-invalid-function"),
    ),
    KnownFailure(
        name="module-load",
        who="migraphx",
        kind="mismatch",
        level="symptom",
        needles=(b"failed to load module: ",),
        pattern=rf"failed to load module: {REST}",
        means=(
            "HIP could not load the kernels of the program: {why}. The most common cause is a file compiled for "
            "a different GPU."
        ),
        fix="`mxr check FILE` compares the file with this GPU.",
        source="MIGraphX src/targets/gpu/kernel.cpp, load_module",
    ),
    KnownFailure(
        name="kernel-missing",
        who="migraphx",
        kind="damaged",
        level="cause",
        needles=(b"failed to get function: ",),
        pattern=r"failed to get function: (?P<symbol>[\w$.]{1,120})",
        means=(
            "The code object of the program has no kernel `{symbol}`: the file is damaged, or it was assembled "
            "from two files."
        ),
        fix="`mxr inspect FILE` shows its kernels. Fetch it again with `mxr fetch MODEL -o FILE`.",
        source="MIGraphX src/targets/gpu/kernel.cpp, kernel::kernel",
    ),
    KnownFailure(
        name="kernel-launch",
        who="migraphx",
        kind="mismatch",
        level="symptom",
        needles=(b"failed to launch kernel: ",),
        pattern=rf"failed to launch kernel: {REST}",
        means=(
            "A kernel of the program failed to launch: {why}. The file may be for a different GPU or a different "
            "number of CUs, or an earlier fault left the GPU unusable."
        ),
        fix=f"{CHECK} If the file matches, restart the process and read `dmesg`.",
        source="MIGraphX src/targets/gpu/kernel.cpp, launch_kernel",
        covers=("hip-no-binary", "hip-invalid-image", "hip-invalid-function"),
    ),
    KnownFailure(
        name="miopen-solution",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"loading convolution solution failed", b"workspace has changed during finalization"),
        pattern=r"loading convolution solution failed|workspace has changed during finalization",
        means=(
            "The program stores a MIOpen solution that the installed MIOpen rejects: it was compiled with "
            "another ROCm patch release or for a different GPU."
        ),
        fix=(
            "`mxr check FILE` shows both ROCm releases. `mxr fetch MODEL` without `--allow patch` gets a program "
            "for the installed one."
        ),
        source="MIGraphX src/targets/gpu/include/migraphx/gpu/convolution.hpp; ROCm/AMDMIGraphX issue 1674",
    ),
    KnownFailure(
        name="kernel-shapes",
        who="migraphx",
        kind="damaged",
        level="cause",
        needles=(b"input shapes have changed: ", b"match the expected output shape"),
        pattern=(
            r"input shapes have changed: \[|"
            r"output buffer \[.{0,300}?\] doesn.{0,2}t match the expected output shape"
        ),
        means=(
            "A kernel receives shapes that it was not compiled for: another release wrote the file, the file was "
            "edited by hand, or it belongs to another model or batch size and has the wrong name."
        ),
        fix="`mxr inspect FILE` shows its shapes. `mxr fetch MODEL --batch N -o FILE` gets the right program.",
        source="MIGraphX src/targets/gpu/code_object_op.cpp, compute_shape",
    ),
    KnownFailure(
        name="offload-copy",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"gpu register failed: ",),
        pattern=rf"gpu register failed: {REST}",
        means=(
            "The program and its caller disagree about offload copy: a program compiled with offload copy "
            "receives GPU memory, or a program compiled without it receives host memory."
        ),
        fix=(
            "Name the consumer: `mxr fetch MODEL --for amdinfer` (or `ort`, `python`, `driver`). `mxr inspect "
            "FILE` shows how the file was compiled."
        ),
        source="MIGraphX src/targets/gpu/hip.cpp, register_on_gpu; ROCm/AMDMIGraphX issue 2478",
    ),
    KnownFailure(
        name="offload-copy-warning",
        who="migraphx",
        kind="warning",
        level="note",
        needles=(b"program was likely compiled with",),
        pattern=r"migraphx program was likely compiled (?P<how>with|without) offload_copy",
        means=(
            "The file was compiled {how} offload copy, and the options of migraphx-driver say the opposite. If "
            "the run fails with `Gpu register failed`, this is the cause."
        ),
        fix="Set or remove `--enable-offload-copy` as the warning says, or run `mxr fetch MODEL --for driver`.",
        source="MIGraphX src/driver/main.cpp; ROCm/AMDMIGraphX issue 2478",
    ),
    KnownFailure(
        name="gpu-memory",
        who="migraphx",
        kind="transient",
        level="cause",
        needles=(
            b"gpu allocation failed: ",
            b"memory not available to allocate",
            b"hiperroroutofmemory",
            b"hip out of memory",
            b"hiperrormemoryallocation",
            b"hip failure 2:",
        ),
        pattern=(
            r"gpu allocation failed: |memory not available to allocate|hiperroroutofmemory|hip out of memory|"
            r"hiperrormemoryallocation|hip failure 2:"
        ),
        means=(
            "GPU memory is exhausted: the program, its scratch space or its tuning buffers do not fit into the "
            "free memory."
        ),
        fix=(
            "`rocm-smi --showmemuse` shows which processes use it. Otherwise use a smaller batch size (`mxr "
            "fetch MODEL --batch N`) or a GPU with more memory."
        ),
        source="MIGraphX src/targets/gpu/hip.cpp, allocate_gpu; ROCm/AMDMIGraphX issue 3052",
    ),
    KnownFailure(
        name="tuned-solution",
        who="migraphx",
        kind="warning",
        level="note",
        needles=(b"tuned solution is invalid",),
        pattern=r"tuned solution is invalid; reverting to default",
        means=(
            "The installed rocBLAS or hipBLASLt does not have the tuned GEMM kernel that the file names. Results "
            "are correct but slower. The program was tuned with another ROCm patch release."
        ),
        fix=(
            "`mxr check FILE` shows both releases. `mxr fetch MODEL --exact` accepts only a program compiled "
            "with exactly this release."
        ),
        source="MIGraphX src/targets/gpu/gemm_impl.cpp and hip_gemm_impl.cpp",
    ),
    KnownFailure(
        name="miopen-fusion",
        who="migraphx",
        kind="warning",
        level="note",
        needles=(b"program has miopen_fusion instructions",),
        pattern=r"program has miopen_fusion instructions",
        means=(
            "MIOpen's fused kernels cannot be stored in the file. MIGraphX rebuilds them at every load, which is "
            "slow and can select different kernels."
        ),
        fix="Compile with `mxr fetch MODEL --env MIGRAPHX_DISABLE_MIOPEN_FUSION=1 --on-miss ask`.",
        source="MIGraphX src/load_save.cpp, print_miopen_warning",
    ),
    KnownFailure(
        name="cross-compiled",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"in cross-compilation mode",),
        pattern=r"cannot (?P<what>execute|copy data|allocate gpu memory) in cross-compilation mode",
        means=(
            "MIGraphX was asked to compile for a GPU that is not on this host and then to {what} on it. A "
            "cross-compiled program must be saved and then loaded on the real GPU."
        ),
        fix=(
            "Save the program and load it on its GPU. `mxr fetch MODEL --allow cross` accepts cross-compiled "
            "programs; without it none are accepted."
        ),
        source="ROCm/AMDMIGraphX pull requests 4795 and 5065",
    ),
)
