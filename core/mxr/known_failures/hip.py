"""Known failures of HIP, the GPU runtime of ROCm."""

from __future__ import annotations

from mxr.known_failures.fragments import CHECK, GFX
from mxr.known_failures.record import KnownFailure

HIP: tuple[KnownFailure, ...] = (
    KnownFailure(
        name="hip-isa",
        who="hip",
        kind="mismatch",
        level="cause",
        needles=(b"is not compatible with the device isa",),
        pattern=(
            rf"program isa {GFX % 'made'}.{{0,40}}? is not compatible with the device isa {GFX % 'arch'}|"
            r"is not compatible with the device isa"
        ),
        means=(
            "The kernels are for {made}, and this GPU is {arch}. If only sramecc or xnack differs, the GPU runs "
            "in a different mode from the one compiled for."
        ),
        fix=(
            "`mxr fetch MODEL --arch {arch}` gets the right program. For xnack, HSA_XNACK=0 may be the missing setting."
        ),
        source="ROCm/clr rocclr/device/devprogram.cpp",
    ),
    KnownFailure(
        name="hip-bundle",
        who="hip",
        kind="mismatch",
        level="cause",
        needles=(b"cannot find co in the bundle",),
        pattern=rf"cannot find co in the bundle(?: (?P<file>(?!for )\S{{1,300}}))?(?: for isa:? {GFX % 'arch'})?",
        means=(
            "HIP finds no kernels for this GPU ({arch}) in {file}. If that file is a ROCm library and not a "
            "program, then the library, not the .mxr file, does not support this GPU."
        ),
        fix=(
            "For a program, run `mxr check FILE`, then `mxr fetch MODEL --arch {arch}`. For a library, install a "
            "ROCm release that supports this GPU."
        ),
        source="ROCm/clr hipamd/src/hip_fatbin.cpp",
    ),
    KnownFailure(
        name="hip-no-binary",
        who="hip",
        kind="mismatch",
        level="symptom",
        needles=(
            b"hiperrornobinaryforgpu",
            b"no kernel image is available",
            b"unable to find code object for all current devices",
        ),
        pattern=(
            r"hiperrornobinaryforgpu|no kernel image is available for execution on the device|"
            r"unable to find code object for all current devices"
        ),
        means="The loaded program or library has no kernels for this GPU: it was built for a different one.",
        fix=("`mxr check FILE` shows both architectures. `mxr fetch MODEL` on this host gets a program for this GPU."),
        source="HIP error 209; microsoft/onnxruntime issue 12662",
        covers=("hip-failure",),
    ),
    KnownFailure(
        name="hip-invalid-function",
        who="hip",
        kind="mismatch",
        level="symptom",
        needles=(b"hiperrorinvaliddevicefunction", b"invalid device function"),
        pattern=r"hiperrorinvaliddevicefunction|(?:hip|failed|error).{0,80}?invalid device function",
        means="The called kernel does not exist for this GPU: the program or library was built for a different one.",
        fix=("`mxr check FILE` shows both architectures. `mxr fetch MODEL` on this host gets a program for this GPU."),
        source="HIP error 98",
        covers=("hip-failure",),
    ),
    KnownFailure(
        name="hip-invalid-image",
        who="hip",
        kind="mismatch",
        level="symptom",
        needles=(b"hiperrorinvalidimage", b"device kernel image is invalid", b"hiperrorinvalidkernelfile"),
        pattern=r"hiperrorinvalidimage|device kernel image is invalid|hiperrorinvalidkernelfile",
        means="HIP rejects the code object: it is for a different GPU, or it is damaged.",
        fix="`mxr check FILE` compares it with this GPU. `mxr inspect FILE` shows its code objects.",
        source="HIP errors 200 and 218",
        covers=("hip-failure",),
    ),
    KnownFailure(
        name="hip-no-device",
        who="hip",
        kind="usage",
        level="cause",
        needles=(b"hiperrornodevice", b"no rocm-capable device is detected", b"no hip gpus are available"),
        pattern=r"hiperrornodevice\b|no rocm-capable device is detected|no hip gpus are available",
        means=(
            "HIP finds no GPU: the container has no GPU device, the user has no permission to open /dev/kfd, or "
            "a *_VISIBLE_DEVICES variable hides the GPU."
        ),
        fix=(
            "Start the container with --device=/dev/kfd --device=/dev/dri and the groups video and render. `mxr "
            "host` shows the visible GPUs."
        ),
        source="HIP error 100",
        covers=("hip-failure",),
    ),
    KnownFailure(
        name="kfd-permission",
        who="hip",
        kind="usage",
        level="cause",
        needles=(b"/dev/kfd", b"rock module is not loaded"),
        pattern=(
            r"(?:unable|failed|cannot|could not).{0,40}/dev/kfd|/dev/kfd.{0,60}?(?:permission denied|no such file)|"
            r"rock module is not loaded"
        ),
        means="This process cannot use the GPU: /dev/kfd does not exist, or the user is not in its group.",
        fix=(
            "Pass --device=/dev/kfd --device=/dev/dri and --group-add with the host's numeric group of /dev/kfd. "
            "Outside a container, run `modprobe amdgpu`."
        ),
        source="ROCm installation guide; rocminfo",
    ),
    KnownFailure(
        name="illegal-access",
        who="hip",
        kind="hang",
        level="symptom",
        needles=(
            b"hip failure 700",
            b"hiperrorillegaladdress",
            b"an illegal memory access was encountered",
            b"memory access fault by gpu",
        ),
        pattern=(
            r"hip failure 700|hiperrorillegaladdress|an illegal memory access was encountered|memory access "
            r"fault by gpu"
        ),
        means=(
            "A kernel accessed memory outside its buffers, and the GPU context is lost. Possible causes are a "
            "program for other shapes, a program for a different GPU, or a bug in MIGraphX or the driver."
        ),
        fix=f"Restart the process. {CHECK} Then read `dmesg`.",
        source="HIP error 700; public reports with the MIGraphX provider",
    ),
    KnownFailure(
        name="hip-failure",
        who="hip",
        kind="permanent",
        level="symptom",
        needles=(b"hip failure ",),
        pattern=r"hip failure (?P<number>(?!700\b|2:)\d{1,4}): ?(?P<why>[^;\"]{1,120})",
        means="HIP failed with error {number}: {why}.",
        fix=f"{CHECK} `mxr host` shows the GPU and the installed ROCm.",
        source="microsoft/onnxruntime core/providers/migraphx/migraphx_call.cc",
    ),
)
