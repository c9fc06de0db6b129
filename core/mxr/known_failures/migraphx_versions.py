"""Known failures of MIGraphX: the file is from another release of MIGraphX."""

from __future__ import annotations

from mxr.known_failures.fragments import CHECK, EXCEPTION, RECOMPILE
from mxr.known_failures.record import KnownFailure

MIGRAPHX_VERSIONS: tuple[KnownFailure, ...] = (
    KnownFailure(
        name="file-version",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"program version mismatch",),
        pattern=(
            r"program version mismatch\. mxr file was created using program file version: (?P<made>\d{1,9}), "
            r"while installed migraphx is using program file version: (?P<here>\d{1,9})"
        ),
        means=(
            "The file uses .mxr format {made}, and the installed MIGraphX reads only format {here}. No tool "
            "converts between formats. Format 5 is ROCm 5.0 to 5.6, 6 is ROCm 5.7, 7 is ROCm 6.0 to 7.2, 8 is "
            "MIGraphX 2.16."
        ),
        fix=f"{RECOMPILE} {CHECK}",
        source="MIGraphX src/program.cpp, program::from_value; run",
        covers=("file-version-unsaid",),
    ),
    KnownFailure(
        name="file-version-unsaid",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"program version mismatch",),
        pattern=r"program version mismatch",
        means=(
            "The installed MIGraphX does not read the .mxr format of this file. MIGraphX of ROCm 5.0 to 5.6 "
            "reports this as a warning, but the load has failed."
        ),
        fix=f"{CHECK} {RECOMPILE}",
        source="MIGraphX src/program.cpp of rocm-5.0 to 5.6",
    ),
    KnownFailure(
        name="hygon-file-version",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"mxr version mismatch",),
        pattern=(
            r"mxr version mismatch(?:\. mxr file was created using mxr version: (?P<made>\d{1,9}), "
            r"while installed migraphx is using mxr version: (?P<here>\d{1,9}))?"
        ),
        means=(
            "Hygon's MIGraphX (DTK) rejects the file: the file has format {made}, and this DTK reads format {here}."
        ),
        fix=(
            "`mxr fetch MODEL --vendor hygon` gets a program compiled for this DTK. `mxr inspect FILE` shows "
            "which MIGraphX wrote a file."
        ),
        source="qianqing13579/MIGraphX_Dynamic src/program.cpp, program::from_value",
    ),
    KnownFailure(
        name="other-migraphx",
        who="migraphx",
        kind="warning",
        level="note",
        needles=(b"mxr file was created using migraphx version",),
        pattern=(
            r"mxr file was created using migraphx version: (?P<made>[\w.+-]{1,60}), "
            r"while installed migraphx is at version: (?P<here>[\w.+-]{1,60}?),? "
        ),
        means=(
            "The file was compiled by MIGraphX {made}, and the installed version is {here}. MIGraphX continues, "
            "but operators change between minor releases: a later step can fail, or results can be wrong without "
            "an error."
        ),
        fix=f"Do not serve this file. {RECOMPILE}",
        source="MIGraphX src/program.cpp, program::from_value; run",
    ),
    KnownFailure(
        name="field-output-arg",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"no key 'output_arg'",),
        pattern=r"no key 'output_arg' in gpu::code_object",
        means=(
            "The file was compiled by MIGraphX 2.12 (ROCm 6.4) or later, and the installed MIGraphX is older. "
            "Both use file format 7, so the version check does not detect this."
        ),
        fix=f"{RECOMPILE} {CHECK}",
        source="MIGraphX src/make_op.cpp; the field came with rocm-6.4.0",
        covers=("unknown-field",),
    ),
    KnownFailure(
        name="field-int8-x4",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"no key 'int8_x4_format'",),
        pattern=r"no key 'int8_x4_format' in (?P<op>[\w:]{1,80})",
        means=(
            "The file was compiled by MIGraphX 2.8 (ROCm 6.0) or earlier, and the installed MIGraphX is newer: "
            "it removed this field from {op}."
        ),
        fix=f"{RECOMPILE} {CHECK}",
        source="MIGraphX src/make_op.cpp; the field went with rocm-6.1.0",
        covers=("unknown-field",),
    ),
    KnownFailure(
        name="unknown-field",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"no key '",),
        pattern=r"no key '(?P<field>[\w.]{1,80})' in (?P<op>[\w:]{1,80})",
        means=(
            "Operator {op} in the file has a field `{field}` that the installed MIGraphX does not know: another "
            "release compiled the file."
        ),
        fix=f"{CHECK} {RECOMPILE}",
        source="MIGraphX src/make_op.cpp; run",
    ),
    KnownFailure(
        name="unknown-operator",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"operator not found",),
        pattern=r"(?:\bat: |register_op\.cpp:\d{1,6}: .{0,40}?|^)operator not found: (?P<op>[\w:@]{1,100})",
        means=(
            "The file uses operator {op}, which the installed MIGraphX does not have. Either another release or "
            "build of MIGraphX compiled the file, or the library of its target is not loaded."
        ),
        fix=f"{CHECK} {RECOMPILE}",
        source="MIGraphX src/register_op.cpp; run",
    ),
    KnownFailure(
        name="old-pooling-mode",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(
            b"failed to parse: max",
            b"failed to parse: average",
            b"failed to parse: avg",
            b"failed to parse: lpnorm",
        ),
        pattern=rf"{EXCEPTION}failed to parse: (?P<value>max|average|avg|lpnorm)\b",
        means=(
            "The file predates MIGraphX 2.2 (March 2022), which stored pooling modes as text. The installed "
            "MIGraphX expects a number and cannot parse `{value}`."
        ),
        fix=RECOMPILE,
        source="ROCm/AMDMIGraphX pull request 1267",
        covers=("wrong-field",),
    ),
)
