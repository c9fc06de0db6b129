"""Known failures of MIGraphX when it runs a program: inputs, shapes and parameters."""

from __future__ import annotations

from mxr.known_failures.record import KnownFailure

MIGRAPHX_RUNS: tuple[KnownFailure, ...] = (
    KnownFailure(
        name="wrong-shape",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"incorrect shape {",),
        pattern=(
            r"incorrect shape \{(?P<got>[^{}]{0,60}\{[^}]{0,200}\}).{0,300}? for parameter: (?P<name>.{1,120}?) "
            r"should be: (?P<want>[^{}]{0,60}\{[^}]{0,200}\})"
        ),
        means=(
            "Input `{name}` has shape {got}, but the program was compiled for {want}. A compiled program accepts "
            "no other shape or batch size."
        ),
        fix="Pad the input to the compiled batch size, or get a program for yours: `mxr fetch MODEL --batch N`.",
        source="MIGraphX src/program.cpp, generic_eval; run",
    ),
    KnownFailure(
        name="wrong-input-name",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"parameter not found: ",),
        pattern=r"(?:^|generic_eval: |program\.cpp:\d{1,6}: .{0,40}?)parameter not found: (?P<name>[^\s\"]{1,120})",
        means=(
            "The caller did not supply the program's parameter `{name}`. If the name is like `main:#output_0`, "
            "the program was compiled without offload copy and the caller must supply the output buffers."
        ),
        fix=(
            "`mxr inspect FILE` lists the inputs. If the caller supplies no output buffers, run `mxr fetch MODEL "
            "--offload-copy`."
        ),
        source="MIGraphX src/program.cpp, generic_eval; run",
    ),
    KnownFailure(
        name="no-context",
        who="migraphx",
        kind="damaged",
        level="cause",
        needles=(b"no context available for ",),
        pattern=r"no context available for (?P<op>[\w:]{1,80})",
        means=(
            "The file contains compiled operators ({op}) but no target, so MIGraphX loads it as uncompiled and "
            "cannot run it. The file was edited."
        ),
        fix="Fetch it again with `mxr fetch MODEL -o FILE`.",
        source="MIGraphX src/program.cpp, generic_eval; run",
    ),
    KnownFailure(
        name="too-big-for-hygon",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"exceed the max input shape",),
        pattern=(
            r"input shape \{(?P<got>[^}]{0,200})\} exceed the max input shape \{(?P<most>[^}]{0,200})\}|"
            r"exceed the max input shape"
        ),
        means=(
            "Hygon's MIGraphX accepts inputs up to the shape given at compile time ({most}); this input has "
            "shape {got}."
        ),
        fix="Send smaller inputs, or compile for larger ones: `mxr fetch MODEL --vendor hygon --input NAME=DIMS`.",
        source="qianqing13579/MIGraphX_Dynamic src/program.cpp",
    ),
)
