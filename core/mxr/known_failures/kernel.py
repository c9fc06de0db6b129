"""Known failures reported by the Linux kernel, the C library or the parent of a terminated process."""

from __future__ import annotations

from mxr.known_failures.record import KnownFailure

KERNEL: tuple[KnownFailure, ...] = (
    KnownFailure(
        name="gpu-hang",
        who="kernel",
        kind="hang",
        level="cause",
        needles=(
            b"hw exception by gpu",
            b"mes failed to respon",
            b"mes might be in unrecoverable",
            b"failed to respond to msg=",
            b"ring gfx",
            b"ring comp",
            b"ring sdma",
            b"gpu reset begin",
        ),
        pattern=(
            r"hw exception by gpu.{0,80}?reason ?: ?gpu hang|mes(?:\(\d,\d\))? failed to respon|"
            r"mes might be in unrecoverable state|ring \S{1,40} timeout|gpu reset begin"
        ),
        means=(
            "The GPU hung, and the driver resets it or fails to. Every process on it is lost. The program or the "
            "compile that was running may be the cause."
        ),
        fix=(
            "Do not use this GPU until a small test succeeds on it; reboot if the test fails. `dmesg | grep "
            "amdgpu` shows more. Retry the job on another host before retrying it here."
        ),
        source="amdgpu driver; ROCm/legacy-rocm-build issue 6512; immich-app/immich issue 29560",
    ),
    KnownFailure(
        name="out-of-memory-kill",
        who="kernel",
        kind="transient",
        level="cause",
        needles=(
            b"out of memory: killed process",
            b"oomkilled",
            b"oom_kill",
            b"oom-kill",
            b"exit code 137",
            b"exited with code 137",
            b"exit status 137",
            b"signal 9",
        ),
        pattern=(
            r"out of memory: killed process|\boomkilled\b(?!\"?: ?false)|oom_kill [1-9]|oom-kill:|"
            r"exit(?:ed)?(?: with)? (?:code|status):? 137\b|killed by signal 9\b"
        ),
        means=(
            "The process was killed from outside (SIGKILL), nearly always because it exceeded its memory limit. "
            "A compile needs 32 GiB or more."
        ),
        fix="Increase the memory limit, or let a larger host compile: `mxr fetch MODEL --on-miss ask`.",
        source="Linux, Docker and Kubernetes; ROCm/AMDMIGraphX issue 4164",
    ),
    KnownFailure(
        name="heap-corruption",
        who="kernel",
        kind="transient",
        level="symptom",
        needles=(
            b"corrupted size vs. prev_size",
            b"malloc(): ",
            b"free(): invalid",
            b"double free or corruption",
            b"corrupted double-linked list",
        ),
        pattern=(
            r"corrupted size vs\. prev_size|malloc\(\): (?:corrupted|invalid|mem|unaligned)|free\(\): invalid|double "
            r"free or corruption|"
            r"corrupted double-linked list"
        ),
        means=(
            "The heap of the process is corrupted. With ONNX Runtime's cache this happens when a cached program "
            "is for an input size other than the requested one."
        ),
        fix="Empty the cache folder, and use one folder per model, size and precision.",
        source="glibc; ROCm/onnxruntime pull request 235; immich-app/immich issue 28330",
    ),
    KnownFailure(
        name="segfault",
        who="kernel",
        kind="transient",
        level="symptom",
        needles=(
            b"segmentation fault",
            b"sigsegv",
            b"exit code 139",
            b"exited with code 139",
            b"exit status 139",
            b"segfault at ",
        ),
        pattern=(
            r"segmentation fault|\bsigsegv\b|exit(?:ed)?(?: with)? (?:code|status):? 139\b|"
            r"segfault at [0-9a-f]{1,16} "
        ),
        means=(
            "The process crashed (segmentation fault). MIGraphX crashes on damaged or malicious files, and on "
            "some models and GPUs."
        ),
        fix=(
            "`mxr inspect FILE` shows without MIGraphX whether the file is intact. If it is, retry once, then "
            "try another MIGraphX release."
        ),
        source="observed by running MIGraphX 2.16; ROCm/AMDMIGraphX issues 1246, 1329, 2243",
    ),
    KnownFailure(
        name="aborted",
        who="kernel",
        kind="permanent",
        level="catch-all",
        needles=(
            b"instance of 'migraphx::",
            b"sigabrt",
            b"aborted (core dumped)",
            b"exit code 134",
            b"exited with code 134",
            b"exit status 134",
        ),
        pattern=(
            r"instance of 'migraphx::[\w:]{0,60}exception'|\bsigabrt\b|aborted \(core dumped\)|"
            r"exit(?:ed)?(?: with)? (?:code|status):? 134\b"
        ),
        means=(
            "The program terminated on an exception that nothing caught. The text of the exception is near this "
            "line, after `what():`."
        ),
        fix="Include that text: `mxr explain < LOG`.",
        source="migraphx-driver ends with SIGABRT on every exception",
    ),
)
