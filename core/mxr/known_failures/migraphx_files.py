"""Known failures of MIGraphX: the file is missing, damaged or not an .mxr file."""

from __future__ import annotations

from mxr.known_failures.fragments import CHECK, EXCEPTION, FILE, RECOMPILE
from mxr.known_failures.record import KnownFailure

MIGRAPHX_FILES: tuple[KnownFailure, ...] = (
    KnownFailure(
        name="file-missing",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"failure opening file",),
        pattern=rf"(?:read\w{{0,20}}: |^)failure opening file: {FILE}",
        means="MIGraphX cannot open `{file}`: the file does not exist, or this user has no permission to read it.",
        fix="Check the path with `ls -l {file}`. `mxr fetch MODEL -o FOLDER/` gets a compiled program.",
        source="MIGraphX src/file_buffer.cpp, generic_read_file; run",
    ),
    KnownFailure(
        name="file-empty",
        who="migraphx",
        kind="damaged",
        level="cause",
        needles=(b"invalid size for: ",),
        pattern=rf"(?:read\w{{0,20}}: |file_buffer\.cpp.{{0,40}}?|^)invalid size for: {FILE}",
        means="`{file}` is empty: a download or save was interrupted before the first byte, or the disk was full.",
        fix="Move it away, and fetch it again with `mxr fetch MODEL -o FILE`.",
        source="MIGraphX src/file_buffer.cpp, generic_read_file; run",
    ),
    KnownFailure(
        name="file-truncated",
        who="migraphx",
        kind="damaged",
        level="cause",
        needles=(b"insufficient bytes",),
        pattern=r"(?:^|: |msgpack.{0,40})insufficient bytes[\s.\"']{0,3}(?:$|\\|,)",
        means=(
            "The .mxr file is truncated: a copy, download or save was interrupted. MIGraphX does not name the file."
        ),
        fix=(
            "`mxr inspect FILE` shows where the file ends. Fetch it again with `mxr fetch MODEL -o FILE`. `mxr "
            "cache verify` checks every file in the cache."
        ),
        source="msgpack-c, as MIGraphX src/msgpack.cpp uses it; run",
    ),
    KnownFailure(
        name="not-an-mxr",
        who="migraphx",
        kind="damaged",
        level="cause",
        needles=(b"not an object for field: version",),
        pattern=r"not an object for field: version\b",
        means=(
            "The file is not an .mxr file. It may be an error page, a git-lfs pointer, an archive, an ONNX "
            "model, or a program saved as JSON."
        ),
        fix=(
            "`mxr inspect FILE` identifies it. For a git-lfs pointer run `git lfs pull`; otherwise run `mxr "
            "fetch MODEL -o FILE`."
        ),
        source="MIGraphX src/value.cpp, value::at; run",
        covers=("broken-structure",),
    ),
    KnownFailure(
        name="no-main-module",
        who="migraphx",
        kind="damaged",
        level="cause",
        needles=(b"not an object for field: main",),
        pattern=r"not an object for field: main\b",
        means="The file has no main module: it is damaged, or a program other than MIGraphX wrote it.",
        fix="`mxr inspect FILE` shows its contents. Fetch it again with `mxr fetch MODEL -o FILE`.",
        source="MIGraphX src/value.cpp, value::at; run",
        covers=("broken-structure",),
    ),
    KnownFailure(
        name="hygon-file",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"key not found: targets",),
        pattern=r"key not found: targets\b",
        means=(
            "AMD's MIGraphX finds no list of targets in the file: Hygon's MIGraphX (DTK) compiled it, or it is "
            "damaged. Both vendors use format number 7, but neither reads the other's files."
        ),
        fix=(
            "`mxr inspect FILE` shows which vendor's MIGraphX compiled it. `mxr fetch MODEL --vendor amd` gets a "
            "program for this runtime."
        ),
        source="MIGraphX src/program.cpp, program::from_value; not tried with a real Hygon file",
        covers=("header-key-missing", "broken-structure"),
    ),
    KnownFailure(
        name="amd-file-on-hygon",
        who="migraphx",
        kind="mismatch",
        level="cause",
        needles=(b"key not found: target", b"key not found: offload_copy"),
        pattern=r"key not found: (?:target|offload_copy)\b",
        means=(
            "Hygon's MIGraphX (DTK) cannot read the file: AMD's MIGraphX compiled it, or it is damaged. Both "
            "vendors use format number 7, but neither reads the other's files."
        ),
        fix=(
            "`mxr inspect FILE` shows which vendor's MIGraphX compiled it. `mxr fetch MODEL --vendor hygon` gets "
            "a program for this runtime."
        ),
        source="qianqing13579/MIGraphX_Dynamic src/program.cpp, program::from_value; not tried with a real DTK",
        covers=("header-key-missing", "broken-structure"),
    ),
    KnownFailure(
        name="header-key-missing",
        who="migraphx",
        kind="damaged",
        level="cause",
        needles=(
            b"key not found: version",
            b"key not found: migraphx_version",
            b"key not found: modules",
            b"key not found: context",
        ),
        pattern=r"key not found: (?P<key>version|migraphx_version|modules|contexts?)\b",
        means=(
            "The header of the file has no `{key}`: the file is damaged, or it is MessagePack data of another program."
        ),
        fix="`mxr inspect FILE` identifies it. Fetch it again with `mxr fetch MODEL -o FILE`.",
        source="MIGraphX src/value.cpp, value::at; run",
        covers=("broken-structure",),
    ),
    KnownFailure(
        name="broken-structure",
        who="migraphx",
        kind="damaged",
        level="cause",
        needles=(
            b"at: key not found: ",
            b"at: not an object for field: ",
            b"incompatible values: ",
            b"expected an array",
        ),
        pattern=(
            r"\bat: (?:key not found|not an object for field): (?P<key>[\w:@.-]{1,100})|"
            r"value\.(?:cpp|hpp):\d{1,6}: .{0,60}?(?:incompatible values|expected an array)"
        ),
        means=(
            "A part of the file (`{key}`) does not have the structure that MIGraphX expects: the file is damaged "
            "or was edited by hand, or another release wrote it."
        ),
        fix=f"`mxr inspect FILE` shows the position. {CHECK}",
        source="MIGraphX src/value.cpp, value::at",
    ),
    KnownFailure(
        name="broken-reference",
        who="migraphx",
        kind="damaged",
        level="cause",
        needles=(b"unordered_map::at", b"_map_base::at"),
        pattern=r"(?:unordered_map|_map_base)::at\b",
        means=(
            "The file refers to a node or type that does not exist: it is damaged or was edited by hand, or it "
            "uses a type that the installed MIGraphX does not have."
        ),
        fix=f"`mxr inspect FILE` shows which one. {CHECK}",
        source="MIGraphX src/program.cpp, mod_from_val; run",
    ),
    KnownFailure(
        name="wrong-field",
        who="migraphx",
        kind="damaged",
        level="cause",
        needles=(b"inconsistent attribute sizes", b"failed to parse: "),
        pattern=(
            rf"\b(?P<field>[A-Z_]{{3,40}}: inconsistent attribute sizes)|{EXCEPTION}failed to parse: "
            rf"(?P<value>[a-z_]\w{{0,60}})$"
        ),
        means=(
            "A field of an operator has a value of the wrong type: the file is damaged or was edited by hand, or "
            "another release wrote it."
        ),
        fix=f"`mxr inspect FILE` shows which MIGraphX wrote it. {RECOMPILE}",
        source="MIGraphX src/include/migraphx/value.hpp and op/*.hpp; run",
    ),
    KnownFailure(
        name="dimensions",
        who="migraphx",
        kind="permanent",
        level="cause",
        needles=(b"dimensions do not match",),
        pattern=r"\bsame_dims: (?P<op>[\w:]{1,80}): dimensions do not match",
        means=(
            "The input shapes of {op} do not match. If this happens during a load, the file was edited by hand "
            "(the batch size of a compiled program cannot be changed). If it happens during a compile, MIGraphX "
            "does not support this model at these shapes."
        ),
        fix=(
            "For another batch size run `mxr fetch MODEL --batch N`. For a compile, try another MIGraphX release "
            "and report the model to ROCm/AMDMIGraphX."
        ),
        source="MIGraphX src/include/migraphx/check_shapes.hpp; run; microsoft/onnxruntime issue 28446",
    ),
    KnownFailure(
        name="msgpack-ext",
        who="migraphx",
        kind="damaged",
        level="cause",
        needles=(b"msgpack ext type not supported",),
        pattern=r"msgpack ext type not supported",
        means=(
            "The file contains a MessagePack type that MIGraphX never writes: it is damaged, or it is "
            "MessagePack data of another program."
        ),
        fix="`mxr inspect FILE` shows the position. Fetch it again with `mxr fetch MODEL -o FILE`.",
        source="MIGraphX src/msgpack.cpp; run",
    ),
    KnownFailure(
        name="msgpack-size",
        who="migraphx",
        kind="permanent",
        level="cause",
        needles=(b"size is too large for msgpack",),
        pattern=r"size is too large for msgpack",
        means=(
            "The program was not saved because one of its parts exceeds the size limit of an .mxr file. Before "
            "MIGraphX 2.8 (ROCm 6.0) that limit is 4 GiB."
        ),
        fix="Compile with MIGraphX 2.8 or later: `mxr fetch MODEL --migraphx 2.15 --rocm 7.2 --on-miss ask`.",
        source="MIGraphX src/msgpack.cpp",
    ),
    KnownFailure(
        name="wrong-parser",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"failed reading onnx file",),
        pattern=rf"failed reading onnx file: {FILE}",
        means=(
            "`{file}` was passed to the ONNX parser but is not an ONNX model. A compiled .mxr file must be "
            "loaded, not parsed."
        ),
        fix="In Python, call `migraphx.load(path)` for an .mxr file. `mxr inspect {file}` identifies the file.",
        source="MIGraphX src/onnx/onnx_parser.cpp, parse_from; run",
    ),
    KnownFailure(
        name="wrong-format-argument",
        who="migraphx",
        kind="usage",
        level="cause",
        needles=(b"unknown format: ",),
        pattern=r"(?:(?:load|save)\w{0,20}: |load_save\.cpp.{0,40}?|^)unknown format: (?P<format>\S{1,60})",
        means="The caller requested file format `{format}`; MIGraphX supports only `msgpack` and `json`.",
        fix='Omit the format, or pass `format="msgpack"`.',
        source="MIGraphX src/load_save.cpp, load_buffer; run",
    ),
)
