"""What `mxr explain` knows: one row per failure of MIGraphX, ONNX Runtime, AMD Inference Server, HIP and the kernel.

Data, kept in one file so that it can be read and added to as a table. A row is added with a sample line in
tests/core/test_explain.py. `means` and `fix` may name groups of the pattern. Patterns are matched without regard to
case against one line (bare of colours, timestamps and other prefixes, blanks single), and must stay linear: every
repeat has an upper bound. Needles are lower case, literal, and rare in ordinary logs.

Sources name MIGraphX's files as of 2.16 (ROCm/AMDMIGraphX, May 2026) unless they say otherwise. "run" means that the
text was seen by running MIGraphX 2.16 on its reference target; the others are read in source or in public issues.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Who = Literal["migraphx", "onnxruntime", "amdinfer", "hip", "kernel"]
Kind = Literal["permanent", "transient", "hang", "mismatch", "usage", "damaged", "warning"]
Level = Literal["cause", "symptom", "note", "catch-all"]

LEVELS: tuple[Level, ...] = ("cause", "symptom", "note", "catch-all")
"""The order of telling."""


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """One known failure.

    `kind` tells a worker what to do with a compile that ends so: `permanent`, `mismatch`, `usage` and `damaged` will
    fail again, `transient` may pass on another try or a bigger host, `hang` means that the GPU must be probed first,
    `warning` is no failure. `covers` names rows that say less about the same line. `unless` is a text that, anywhere
    in the log, shows that all went well.
    """

    name: str
    who: Who
    kind: Kind
    level: Level
    needles: tuple[bytes, ...]
    pattern: str
    means: str
    fix: str
    source: str
    covers: tuple[str, ...] = ()
    unless: bytes = b""


_FILE = r"[\"']{0,2}(?P<file>[^\"']{1,300}?\.(?:mxr|onnx)\b|[^\s\"']{1,300})"
_HASHED = r"[0-9a-f]{4,8}(?:-[0-9a-f]{1,16}){3,4}\.mxr"
_GFX = r"(?:amdgcn-amd-amdhsa--)?(?P<%s>gfx[0-9a-f]{3,5}(?:-generic|-[0-9]-generic)?(?::(?:sramecc|xnack)[+-]){0,2})"
_REST = r"(?P<why>[^\"]{1,200})"
_START = r"(?:^|(?:what\(\)|[a-z]{1,40}(?:error|exception)|migraphx_\w{1,60}: error): )"

_RECOMPILE = "`mxr fetch MODEL` on this host gets a program made for it, or says what is missing"
_CHECK = "`mxr check FILE` shows what a file needs beside what is here"

# fmt: off
FAILURES: tuple[KnownFailure, ...] = (
    # --- MIGraphX: versions ---
    KnownFailure(
        "file-version", "migraphx", "mismatch", "cause", (b"program version mismatch",),
        r"program version mismatch\. mxr file was created using program file version: (?P<made>\d{1,9}), "
        r"while installed migraphx is using program file version: (?P<here>\d{1,9})",
        "The file has .mxr format {made} and the MIGraphX here reads only format {here}; nothing converts one into the "
        "other. Format 5 is ROCm 5.0 to 5.6, 6 is 5.7, 7 is 6.0 to 7.2, 8 is MIGraphX 2.16.",
        f"{_RECOMPILE}; {_CHECK}.",
        "MIGraphX src/program.cpp, program::from_value; run",
        covers=("file-version-unsaid",),
    ),
    KnownFailure(
        "file-version-unsaid", "migraphx", "mismatch", "cause", (b"program version mismatch",),
        r"program version mismatch",
        "The file's .mxr format is not the one that the MIGraphX here reads. This old MIGraphX (ROCm 5.0 to 5.6) calls "
        "it a warning, but it is the end of the load.",
        f"{_CHECK}; {_RECOMPILE}.",
        "MIGraphX src/program.cpp of rocm-5.0 to 5.6",
    ),
    KnownFailure(
        "hygon-file-version", "migraphx", "mismatch", "cause", (b"mxr version mismatch",),
        r"mxr version mismatch(?:\. mxr file was created using mxr version: (?P<made>\d{1,9}), "
        r"while installed migraphx is using mxr version: (?P<here>\d{1,9}))?",
        "Hygon's MIGraphX (DTK) refuses the file: it has format {made} and this one reads format {here}.",
        "`mxr fetch MODEL --vendor hygon` gets one made for this DTK; `mxr inspect FILE` shows who made a file.",
        "qianqing13579/MIGraphX_Dynamic src/program.cpp, program::from_value",
    ),
    KnownFailure(
        "other-migraphx", "migraphx", "warning", "note", (b"mxr file was created using migraphx version",),
        r"mxr file was created using migraphx version: (?P<made>[\w.+-]{1,60}), "
        r"while installed migraphx is at version: (?P<here>[\w.+-]{1,60}?),? ",
        "The file was made by MIGraphX {made} and this is {here}. MIGraphX goes on, but between minor releases "
        "operators change: it may fail further on, or be wrong without a word.",
        f"Do not serve with it: {_RECOMPILE}.",
        "MIGraphX src/program.cpp, program::from_value; run",
    ),
    KnownFailure(
        "field-output-arg", "migraphx", "mismatch", "cause", (b"no key 'output_arg'",),
        r"no key 'output_arg' in gpu::code_object",
        "The file was made by MIGraphX 2.12 (ROCm 6.4) or later and the one here is older. Both call their format 7, "
        "so the version check did not notice.",
        f"{_RECOMPILE}; {_CHECK}.",
        "MIGraphX src/make_op.cpp; the field came with rocm-6.4.0",
        covers=("unknown-field",),
    ),
    KnownFailure(
        "field-int8-x4", "migraphx", "mismatch", "cause", (b"no key 'int8_x4_format'",),
        r"no key 'int8_x4_format' in (?P<op>[\w:]{1,80})",
        "The file was made by MIGraphX 2.8 (ROCm 6.0) or earlier and the one here is newer: {op} lost that field.",
        f"{_RECOMPILE}; {_CHECK}.",
        "MIGraphX src/make_op.cpp; the field went with rocm-6.1.0",
        covers=("unknown-field",),
    ),
    KnownFailure(
        "unknown-field", "migraphx", "mismatch", "cause", (b"no key '",),
        r"no key '(?P<field>[\w.]{1,80})' in (?P<op>[\w:]{1,80})",
        "Operator {op} in the file has a field `{field}` that the MIGraphX here does not know: the file was made by "
        "another release.",
        f"{_CHECK}; {_RECOMPILE}.",
        "MIGraphX src/make_op.cpp; run",
    ),
    KnownFailure(
        "unknown-operator", "migraphx", "mismatch", "cause", (b"operator not found",),
        r"(?:\bat: |register_op\.cpp:\d{1,6}: .{0,40}?|^)operator not found: (?P<op>[\w:@]{1,100})",
        "The file uses operator {op}, which the MIGraphX here does not have: it was made by another release or another "
        "build of MIGraphX, or the library of its target is not loaded.",
        f"{_CHECK}; {_RECOMPILE}.",
        "MIGraphX src/register_op.cpp; run",
    ),
    KnownFailure(
        "old-pooling-mode", "migraphx", "mismatch", "cause",
        (b"failed to parse: max", b"failed to parse: average", b"failed to parse: avg", b"failed to parse: lpnorm"),
        rf"{_START}failed to parse: (?P<value>max|average|avg|lpnorm)\b",
        "The file is from before MIGraphX 2.2 (March 2022), when pooling modes were words; this MIGraphX expects "
        "numbers and stumbles over `{value}`.",
        f"{_RECOMPILE}.",
        "ROCm/AMDMIGraphX pull request 1267",
        covers=("wrong-field",),
    ),
    # --- MIGraphX: the file ---
    KnownFailure(
        "file-missing", "migraphx", "usage", "cause", (b"failure opening file",),
        rf"(?:read\w{{0,20}}: |^)failure opening file: {_FILE}",
        "MIGraphX cannot open `{file}`: it is not there, or this user may not read it.",
        "Look with `ls -l {file}`; `mxr fetch MODEL -o {file}` puts it there.",
        "MIGraphX src/file_buffer.cpp, generic_read_file; run",
    ),
    KnownFailure(
        "file-empty", "migraphx", "damaged", "cause", (b"invalid size for: ",),
        rf"(?:read\w{{0,20}}: |file_buffer\.cpp.{{0,40}}?|^)invalid size for: {_FILE}",
        "`{file}` is empty: a download or a save stopped before it began, or the disk was full.",
        "Remove it and get it again: `mxr fetch MODEL -o {file}`.",
        "MIGraphX src/file_buffer.cpp, generic_read_file; run",
    ),
    KnownFailure(
        "file-truncated", "migraphx", "damaged", "cause", (b"insufficient bytes",),
        r"(?:^|: |msgpack.{0,40})insufficient bytes[\s.\"']{0,3}(?:$|\\|,)",
        "The .mxr file ends too early: a copy, a download or a save was cut off. MIGraphX does not say which file.",
        "`mxr inspect FILE` says where it breaks off; get it again with `mxr fetch MODEL -o FILE`; `mxr cache verify` "
        "reads the whole cache.",
        "msgpack-c, as MIGraphX src/msgpack.cpp uses it; run",
    ),
    KnownFailure(
        "not-an-mxr", "migraphx", "damaged", "cause", (b"not an object for field: version",),
        r"not an object for field: version\b",
        "The file is no .mxr at all: an error page, a git-lfs pointer, an archive, an ONNX file, or a program saved as "
        "JSON.",
        "`mxr inspect FILE` says what it is; for git-lfs run `git lfs pull`, else `mxr fetch MODEL -o FILE`.",
        "MIGraphX src/value.cpp, value::at; run",
        covers=("broken-structure",),
    ),
    KnownFailure(
        "no-main-module", "migraphx", "damaged", "cause", (b"not an object for field: main",),
        r"not an object for field: main\b",
        "The file has no main module: it is damaged, or was written by something other than MIGraphX.",
        "`mxr inspect FILE` shows what is in it; get it again with `mxr fetch MODEL -o FILE`.",
        "MIGraphX src/value.cpp, value::at; run",
        covers=("broken-structure",),
    ),
    KnownFailure(
        "hygon-file", "migraphx", "mismatch", "cause", (b"key not found: targets",),
        r"key not found: targets\b",
        "The file was made by Hygon's MIGraphX (DTK), or is damaged: AMD's MIGraphX finds no list of targets in it. "
        "Both call their format 7, and neither reads the other's.",
        "`mxr inspect FILE` shows who made it; `mxr fetch MODEL --vendor amd` gets one for this runtime.",
        "MIGraphX src/program.cpp, program::from_value; not tried with a real Hygon file",
        covers=("header-key-missing", "broken-structure"),
    ),
    KnownFailure(
        "amd-file-on-hygon", "migraphx", "mismatch", "cause",
        (b"key not found: target", b"key not found: offload_copy"),
        r"key not found: (?:target|offload_copy)\b",
        "The file was made by AMD's MIGraphX and this one is Hygon's (DTK), or it is damaged. Both call their format "
        "7, and neither reads the other's.",
        "`mxr inspect FILE` shows who made it; `mxr fetch MODEL --vendor hygon` gets one for this runtime.",
        "qianqing13579/MIGraphX_Dynamic src/program.cpp, program::from_value; not tried with a real DTK",
        covers=("header-key-missing", "broken-structure"),
    ),
    KnownFailure(
        "header-key-missing", "migraphx", "damaged", "cause",
        (b"key not found: version", b"key not found: migraphx_version", b"key not found: modules",
         b"key not found: context"),
        r"key not found: (?P<key>version|migraphx_version|modules|contexts?)\b",
        "The head of the file has no `{key}`: it is damaged, or another program's msgpack.",
        "`mxr inspect FILE` says what it is; get it again with `mxr fetch MODEL -o FILE`.",
        "MIGraphX src/value.cpp, value::at; run",
        covers=("broken-structure",),
    ),
    KnownFailure(
        "broken-structure", "migraphx", "damaged", "cause",
        (b"at: key not found: ", b"at: not an object for field: ", b"incompatible values: ", b"expected an array"),
        r"\bat: (?:key not found|not an object for field): (?P<key>[\w:@.-]{1,100})|"
        r"value\.(?:cpp|hpp):\d{1,6}: .{0,60}?(?:incompatible values|expected an array)",
        "A part of the file (`{key}`) is not built as MIGraphX expects: it is damaged, edited by hand, or from a "
        "release that wrote it otherwise.",
        f"`mxr inspect FILE` shows where; {_CHECK}.",
        "MIGraphX src/value.cpp, value::at",
    ),
    KnownFailure(
        "broken-reference", "migraphx", "damaged", "cause", (b"unordered_map::at", b"_map_base::at"),
        r"(?:unordered_map|_map_base)::at\b",
        "Something in the file refers to a node or a type that is not there: it is damaged or edited by hand, or it "
        "uses a type that this MIGraphX does not have.",
        f"`mxr inspect FILE` shows what; {_CHECK}.",
        "MIGraphX src/program.cpp, mod_from_val; run",
    ),
    KnownFailure(
        "wrong-field", "migraphx", "damaged", "cause", (b"inconsistent attribute sizes", b"failed to parse: "),
        rf"\b(?P<field>[A-Z_]{{3,40}}: inconsistent attribute sizes)|{_START}failed to parse: "
        rf"(?P<value>[a-z_]\w{{0,60}})$",
        "A field of an operator holds the wrong sort of value: the file is damaged, edited by hand, or from another "
        "release.",
        f"`mxr inspect FILE` shows what made it; {_RECOMPILE}.",
        "MIGraphX src/include/migraphx/value.hpp and op/*.hpp; run",
    ),
    KnownFailure(
        "dimensions", "migraphx", "permanent", "cause", (b"dimensions do not match",),
        r"\bsame_dims: (?P<op>[\w:]{1,80}): dimensions do not match",
        "The shapes around {op} do not fit. While loading, the file was edited by hand (a batch cannot be changed in a "
        "compiled program); while compiling, MIGraphX cannot handle this model at these shapes.",
        "For another batch: `mxr fetch MODEL --batch N`. For a compile: try another MIGraphX release, and report the "
        "model to ROCm/AMDMIGraphX.",
        "MIGraphX src/include/migraphx/check_shapes.hpp; run; microsoft/onnxruntime issue 28446",
    ),
    KnownFailure(
        "msgpack-ext", "migraphx", "damaged", "cause", (b"msgpack ext type not supported",),
        r"msgpack ext type not supported",
        "The file holds a msgpack type that MIGraphX never writes: it is damaged, or another program's msgpack.",
        "`mxr inspect FILE` says where; get it again with `mxr fetch MODEL -o FILE`.",
        "MIGraphX src/msgpack.cpp; run",
    ),
    KnownFailure(
        "msgpack-size", "migraphx", "permanent", "cause", (b"size is too large for msgpack",),
        r"size is too large for msgpack",
        "The program has a part too big for an .mxr file and was not saved. MIGraphX before 2.8 (ROCm 6.0) stops at 4 "
        "GiB.",
        "Compile with MIGraphX 2.8 or later: `mxr fetch MODEL --migraphx 2.15 --rocm 7.2 --on-miss ask`.",
        "MIGraphX src/msgpack.cpp",
    ),
    KnownFailure(
        "wrong-parser", "migraphx", "usage", "cause", (b"failed reading onnx file",),
        rf"failed reading onnx file: {_FILE}",
        "`{file}` was given to the ONNX parser and is no ONNX file; a compiled .mxr must be loaded, not parsed.",
        "In Python: `migraphx.load(path)` for an .mxr. `mxr inspect {file}` says what the file is.",
        "MIGraphX src/onnx/onnx_parser.cpp, parse_from; run",
    ),
    KnownFailure(
        "wrong-format-argument", "migraphx", "usage", "cause", (b"unknown format: ",),
        r"(?:(?:load|save)\w{0,20}: |load_save\.cpp.{0,40}?|^)unknown format: (?P<format>\S{1,60})",
        "The caller asked for file format `{format}`; MIGraphX knows only `msgpack` and `json`.",
        'Leave the format out, or say `format="msgpack"`.',
        "MIGraphX src/load_save.cpp, load_buffer; run",
    ),
    # --- MIGraphX: the run ---
    KnownFailure(
        "wrong-shape", "migraphx", "usage", "cause", (b"incorrect shape {",),
        r"incorrect shape \{(?P<got>[^{}]{0,60}\{[^}]{0,200}\}).{0,300}? for parameter: (?P<name>.{1,120}?) "
        r"should be: (?P<want>[^{}]{0,60}\{[^}]{0,200}\})",
        "Input `{name}` was given as {got}, but the program was compiled for {want}; a compiled program takes no other "
        "shape or batch.",
        "Pad to that batch, or get a program for yours: `mxr fetch MODEL --batch N`.",
        "MIGraphX src/program.cpp, generic_eval; run",
    ),
    KnownFailure(
        "wrong-input-name", "migraphx", "usage", "cause", (b"parameter not found: ",),
        r"(?:^|generic_eval: |program\.cpp:\d{1,6}: .{0,40}?)parameter not found: (?P<name>[^\s\"]{1,120})",
        "The program wants a parameter `{name}` that the caller did not give. For `main:#output_0` and the like: the "
        "program was compiled without offload copy, and its caller must bring the outputs.",
        "`mxr inspect FILE` lists its inputs; for callers that bring no outputs `mxr fetch MODEL --offload-copy`.",
        "MIGraphX src/program.cpp, generic_eval; run",
    ),
    KnownFailure(
        "no-context", "migraphx", "damaged", "cause", (b"no context available for ",),
        r"no context available for (?P<op>[\w:]{1,80})",
        "The file holds compiled operators ({op}) but no longer says for which target, so that it loads as uncompiled "
        "and cannot run. It was edited.",
        "Get it again with `mxr fetch MODEL -o FILE`.",
        "MIGraphX src/program.cpp, generic_eval; run",
    ),
    KnownFailure(
        "too-big-for-hygon", "migraphx", "usage", "cause", (b"exceed the max input shape",),
        r"input shape \{(?P<got>[^}]{0,200})\} exceed the max input shape \{(?P<most>[^}]{0,200})\}|"
        r"exceed the max input shape",
        "Hygon's MIGraphX takes inputs up to the shape given at compile time ({most}), and this one was {got}.",
        "Send smaller inputs, or compile for larger ones: `mxr fetch MODEL --vendor hygon --input NAME=DIMS`.",
        "qianqing13579/MIGraphX_Dynamic src/program.cpp",
    ),
    # --- MIGraphX: targets and devices ---
    KnownFailure(
        "no-target-library", "migraphx", "usage", "cause", (b"dynamic loading or symbol lookup failed",),
        r"dynamic loading or symbol lookup failed with "
        r"(?P<library>\S{0,120}libmigraphx_(?P<target>[a-z]{1,20})\.so[\w.]{0,20})",
        "The program is for target `{target}`, and MIGraphX's library for it, {library}, cannot be loaded here: it is "
        "not installed, or a ROCm library that it needs is missing.",
        "Install the MIGraphX package with GPU support; `ldd` on that library shows what is missing. `mxr host` shows "
        "what mxr finds here.",
        "MIGraphX src/dynamic_loader.cpp, check_load_error; run",
        covers=("dynamic-loading",),
    ),
    KnownFailure(
        "dynamic-loading", "migraphx", "usage", "cause", (b"dynamic loading or symbol lookup failed",),
        rf"dynamic loading or symbol lookup failed with {_REST}",
        "MIGraphX could not load one of its libraries: {why}. Usually parts of two ROCm releases are mixed.",
        "`ldd` on that library shows what is missing; `mxr host` shows which ROCm and MIGraphX are here.",
        "MIGraphX src/dynamic_loader.cpp, check_load_error",
    ),
    KnownFailure(
        "no-target", "migraphx", "usage", "cause", (b"is not loaded or not supported",),
        r"requested target '(?P<target>[^']{0,40})' is not loaded or not supported",
        "The MIGraphX here has no target `{target}`: it was built or installed without it.",
        "Install the MIGraphX package with that target; `mxr inspect FILE` shows which one a file needs.",
        "MIGraphX src/register_target.cpp",
    ),
    KnownFailure(
        "wrong-context", "migraphx", "mismatch", "cause", (b"unexpected context type",),
        rf"unexpected context type: {_REST}",
        "The program's operators are for another target than the one it is run on: the file mixes targets, or is "
        "damaged.",
        f"`mxr inspect FILE` shows its targets; {_RECOMPILE}.",
        "MIGraphX src/include/migraphx/check_context.hpp",
    ),
    KnownFailure(
        "no-device", "migraphx", "usage", "cause", (b"no device", b"failed to get device properties"),
        r"(?:^|(?:device_name|targets)\.cpp:\d{1,6}: (?:\w{1,60}: )?|get_device_(?:id|name): )no device\.?$|"
        r"failed to get device properties",
        "MIGraphX sees no GPU: none is handed to this container, the user may not open /dev/kfd, or a "
        "*_VISIBLE_DEVICES variable hides it.",
        "Run with --device=/dev/kfd --device=/dev/dri and the groups video and render; `mxr host` shows what is "
        "visible.",
        "MIGraphX src/targets/gpu/device_name.cpp and context.hpp",
    ),
    KnownFailure(
        "library-without-arch", "migraphx", "mismatch", "cause", (b"trying to run a kernel for",),
        rf"trying to run a kernel for {_GFX % 'arch'} but migraphx was built for targets (?P<built>.{{0,200}}?)"
        r"\.? ?(?:please rebuild|$)",
        "The MIGraphX library itself, not the file, has no kernels for this GPU ({arch}); it was built for {built}.",
        "Install a MIGraphX whose package supports {arch}, or rebuild it with -DGPU_TARGETS={arch}. No other .mxr will "
        "help.",
        "MIGraphX src/targets/gpu/device/include/migraphx/gpu/device/launch.hpp",
        covers=("device-kernel",),
    ),
    KnownFailure(
        "device-kernel", "migraphx", "permanent", "symptom", (b"device kernel failed to launch",),
        rf"device kernel failed to launch with error: {_REST}",
        "One of MIGraphX's own kernels did not start: {why}.",
        f"{_CHECK}; `mxr host` shows the GPU and the MIGraphX here.",
        "MIGraphX src/targets/gpu/device/include/migraphx/gpu/device/launch.hpp",
    ),
    KnownFailure(
        "module-wrong-arch", "migraphx", "mismatch", "symptom", (b"failed to load module: ",),
        r"failed to load module: .{0,80}?(?:no kernel image|nobinaryforgpu|code object|kernel image is invalid|"
        r"invalid kernel file|invalid device|invalid ?image|shared object)",
        "The program was compiled for another GPU than this one: HIP has no use for its kernels. MIGraphX does not "
        "compare architectures, so it shows only now.",
        "`mxr check FILE` names both; `mxr fetch MODEL --arch GFX` (or on this host, without --arch) gets the right "
        "one.",
        "MIGraphX src/targets/gpu/kernel.cpp, load_module",
        covers=("module-load", "hip-no-binary", "hip-invalid-image", "hip-invalid-function"),
    ),
    KnownFailure(
        "module-load", "migraphx", "mismatch", "symptom", (b"failed to load module: ",),
        rf"failed to load module: {_REST}",
        "HIP would not take the program's kernels: {why}. The commonest reason is a file compiled for another GPU.",
        "`mxr check FILE` compares the file with this GPU.",
        "MIGraphX src/targets/gpu/kernel.cpp, load_module",
    ),
    KnownFailure(
        "kernel-missing", "migraphx", "damaged", "cause", (b"failed to get function: ",),
        r"failed to get function: (?P<symbol>[\w$.]{1,120})",
        "The program's code object has no kernel `{symbol}`: the file is damaged or was put together from two.",
        "`mxr inspect FILE` shows its kernels; get it again with `mxr fetch MODEL -o FILE`.",
        "MIGraphX src/targets/gpu/kernel.cpp, kernel::kernel",
    ),
    KnownFailure(
        "kernel-launch", "migraphx", "mismatch", "symptom", (b"failed to launch kernel: ",),
        rf"failed to launch kernel: {_REST}",
        "A kernel of the program did not start: {why}. The file may be for another GPU or another number of CUs, or an "
        "earlier fault left the GPU unusable.",
        f"{_CHECK}; if they agree, restart the process and look at `dmesg`.",
        "MIGraphX src/targets/gpu/kernel.cpp, launch_kernel",
        covers=("hip-no-binary", "hip-invalid-image", "hip-invalid-function"),
    ),
    KnownFailure(
        "miopen-solution", "migraphx", "mismatch", "cause",
        (b"loading convolution solution failed", b"workspace has changed during finalization"),
        r"loading convolution solution failed|workspace has changed during finalization",
        "The program keeps a plan for MIOpen that the MIOpen here does not take: it was made with another ROCm patch "
        "release or for another GPU.",
        "`mxr check FILE` shows both ROCm releases; `mxr fetch MODEL` without `--allow patch` gets one made for this "
        "one.",
        "MIGraphX src/targets/gpu/include/migraphx/gpu/convolution.hpp; ROCm/AMDMIGraphX issue 1674",
    ),
    KnownFailure(
        "kernel-shapes", "migraphx", "damaged", "cause",
        (b"input shapes have changed: ", b"match the expected output shape"),
        r"input shapes have changed: \[|output buffer \[.{0,300}?\] doesn.{0,2}t match the expected output shape",
        "A kernel is given shapes that it was not compiled for: the file is from another release, edited by hand, or "
        "it is another model's or batch's under this name.",
        "`mxr inspect FILE` shows its shapes; `mxr fetch MODEL --batch N -o FILE` gets the right one.",
        "MIGraphX src/targets/gpu/code_object_op.cpp, compute_shape",
    ),
    KnownFailure(
        "offload-copy", "migraphx", "mismatch", "cause", (b"gpu register failed: ",),
        rf"gpu register failed: {_REST}",
        "Program and caller disagree about offload copy: it was compiled to copy inputs and outputs itself and is "
        "handed GPU memory, or the reverse.",
        "Say who loads it: `mxr fetch MODEL --for amdinfer`, or `ort`, `python`, `driver`; `mxr inspect FILE` shows "
        "what it is.",
        "MIGraphX src/targets/gpu/hip.cpp, register_on_gpu; ROCm/AMDMIGraphX issue 2478",
    ),
    KnownFailure(
        "offload-copy-warning", "migraphx", "warning", "note", (b"program was likely compiled with",),
        r"migraphx program was likely compiled (?P<how>with|without) offload_copy",
        "The file was compiled {how} offload copy, and the driver was told otherwise. If the run fails with `Gpu "
        "register failed`, that is why.",
        "Set or drop `--enable-offload-copy` as it says, or `mxr fetch MODEL --for driver`.",
        "MIGraphX src/driver/main.cpp; ROCm/AMDMIGraphX issue 2478",
    ),
    KnownFailure(
        "gpu-memory", "migraphx", "transient", "cause",
        (b"gpu allocation failed: ", b"memory not available to allocate", b"hiperroroutofmemory", b"hip out of memory",
         b"hiperrormemoryallocation", b"hip failure 2:"),
        r"gpu allocation failed: |memory not available to allocate|hiperroroutofmemory|hip out of memory|"
        r"hiperrormemoryallocation|hip failure 2:",
        "The GPU's memory is full: the program, its scratch space or its tuning buffers do not fit beside what is "
        "there.",
        "`rocm-smi --showmemuse` shows who uses it; else a smaller batch, `mxr fetch MODEL --batch N`, or a GPU with "
        "more.",
        "MIGraphX src/targets/gpu/hip.cpp, allocate_gpu; ROCm/AMDMIGraphX issue 3052",
    ),
    KnownFailure(
        "tuned-solution", "migraphx", "warning", "note", (b"tuned solution is invalid",),
        r"tuned solution is invalid; reverting to default",
        "The tuned GEMM kernel that the file names is not in the rocBLAS or hipBLASLt here: results are right, speed "
        "is not. It was tuned with another ROCm patch release.",
        "`mxr check FILE` shows both; `mxr fetch MODEL --exact` takes only one made with exactly this one.",
        "MIGraphX src/targets/gpu/gemm_impl.cpp and hip_gemm_impl.cpp",
    ),
    KnownFailure(
        "miopen-fusion", "migraphx", "warning", "note", (b"program has miopen_fusion instructions",),
        r"program has miopen_fusion instructions",
        "MIOpen's fused kernels cannot be stored in the file: they are built again at each load, which is slow and may "
        "choose others.",
        "Compile with `mxr fetch MODEL --env MIGRAPHX_DISABLE_MIOPEN_FUSION=1 --on-miss ask`.",
        "MIGraphX src/load_save.cpp, print_miopen_warning",
    ),
    KnownFailure(
        "cross-compiled", "migraphx", "usage", "cause", (b"in cross-compilation mode",),
        r"cannot (?P<what>execute|copy data|allocate gpu memory) in cross-compilation mode",
        "MIGraphX was told to compile for a GPU that is not here, and then to {what} on it. A cross-compiled program "
        "runs only after it is saved and loaded on the real one.",
        "Save it and load it on its GPU. `mxr fetch MODEL --allow cross` takes such programs; none are taken without.",
        "ROCm/AMDMIGraphX pull requests 4795 and 5065",
    ),
    # --- MIGraphX: the compile ---
    KnownFailure(
        "too-few-cus", "migraphx", "permanent", "cause", (b"cannot be lower than arch minnumcu",),
        r"num_cu ?= ?(?P<here>\d{1,6})(?: : i\d{1,3})? cannot be lower than arch minnumcu ?= ?(?P<least>\d{1,6})",
        "rocMLIR in this MIGraphX refuses GPUs of this arch with fewer than {least} CUs, and counts {here} here (half "
        "of what rocminfo prints on RDNA). Small APUs and partitions of a big GPU meet it.",
        "A later MIGraphX may have a lower limit; else leave the GPU unpartitioned (SPX), or set "
        "MIGRAPHX_DISABLE_MLIR=1 in the key: `mxr fetch MODEL --env MIGRAPHX_DISABLE_MLIR=1 --on-miss ask`.",
        "ROCm/rocMLIR getNumCU; issues 1673, 1927, 2197; ROCm/AMDMIGraphX issue 4196",
        covers=("mlir",),
    ),
    KnownFailure(
        "no-tuned-kernel", "migraphx", "permanent", "cause",
        (b"no valid tuned compilation", b"no configs to tune", b"no solutions provided for", b"gpu::tuning_config"),
        r"no valid tuned compilation|no configs to tune|no solutions provided for (?P<op>[\w:]{1,80})|"
        r"gpu::tuning_config.{0,600}?assertion '",
        "No kernel could be made for one operator of the model on this GPU. This MIGraphX will fail on it each time.",
        "Compile with another MIGraphX release, or for a gpu::mlir_op with `mxr fetch MODEL --env "
        "MIGRAPHX_DISABLE_MLIR=1 --on-miss ask`; report it to ROCm/AMDMIGraphX.",
        "MIGraphX src/targets/gpu/compile_ops.cpp; pnikolic-amd/ComfyUI_MIGraphX issue 11; ROCm/AMDMIGraphX 3033, 4319",
    ),
    KnownFailure(
        "mlir", "migraphx", "permanent", "cause",
        (b"invalid mlir created", b"mlir backend compilation failed", b"failed to compile mlir program"),
        r"(?:invalid mlir created|mlir backend compilation failed|failed to compile mlir program)(?:: "
        r"(?P<why>.{1,160}))?",
        "rocMLIR cannot compile a part of the model for this GPU ({why}); it will fail each time.",
        "Compile with another MIGraphX release, or with `mxr fetch MODEL --env MIGRAPHX_DISABLE_MLIR=1 --on-miss ask`.",
        "MIGraphX src/targets/gpu/mlir.cpp",
    ),
    KnownFailure(
        "hiprtc", "migraphx", "permanent", "cause",
        (b"hiprtc_error_", b"hiprtc compilation failed", b"unknown hip compiler"),
        r"hiprtc_error_\w{1,60}|hiprtc compilation failed|unknown hip compiler",
        "HIP's run-time compiler refused a kernel. Most often libraries of two ROCm releases are mixed, such as those "
        "that PyTorch brings along.",
        "Compile in a process that imports only migraphx (`mxr-worker` does); `mxr host` shows which ROCm is found.",
        "MIGraphX src/targets/gpu/compile_hip.cpp; ROCm/AMDMIGraphX issues 2113 and 3487",
    ),
    KnownFailure(
        "pool-thread", "migraphx", "permanent", "symptom",
        (b"terminate called recursively", b"std::system_error", b"update_config"),
        r"terminate called recursively|instance of 'std::system_error'|std::system_error|"
        r"(?:migraphx|compile_ops|what\(\)).{0,160}\bupdate_config\b",
        "MIGraphX died in one of its compile threads, and the real message is lost. It will most likely do so again.",
        "Compile one kernel at a time with MIGRAPHX_GPU_COMPILE_PARALLEL=1 to see the message; as a last resort `mxr "
        "fetch MODEL --env MIGRAPHX_DISABLE_MLIR=1 --on-miss ask`.",
        "ROCm/AMDMIGraphX issues 2983, 4319 and 5254",
    ),
    KnownFailure(
        "host-memory", "migraphx", "transient", "cause", (b"std::bad_alloc", b"memoryerror"),
        r"std::bad_alloc|^memoryerror\b",
        "This host's memory ran out, or the file lies about its sizes because it is damaged. A compile can need 32 GiB "
        "and more; a load needs about three times the file.",
        "`mxr inspect FILE` says whether the file is sound; if it is, give the process more memory.",
        "observed by running MIGraphX 2.16; ROCm/onnxruntime pull request 227",
    ),
    KnownFailure(
        "save-failed", "migraphx", "usage", "cause",
        (b"write_buffer: failure", b"write_string: failure", b"error writing file: "),
        rf"(?:write\w{{0,20}}: failure opening file|error writing file): {_FILE}",
        "MIGraphX cannot write `{file}`: its folder is not there, may not be written, or the disk is full.",
        "Make the folder with `mkdir -p` and look at `df`; then run it again.",
        "MIGraphX src/file_buffer.cpp, write_buffer; run",
        covers=("file-missing",),
    ),
    # --- ONNX Runtime ---
    KnownFailure(
        "ort-cache-dir-unset", "onnxruntime", "usage", "cause", (b"write_buffer: failure",),
        rf"write\w{{0,20}}: failure opening file: (?:[\"']{{2}}/?|/|[\"']/?)?{_HASHED}",
        "ONNX Runtime wants to save its compiled model and has no folder to save it in: the cache variable that this "
        "build reads is not set. Builds differ in which one that is.",
        "Set both ORT_MIGRAPHX_MODEL_CACHE_PATH and ORT_MIGRAPHX_CACHE_PATH (the plugin provider reads "
        "ORT_MIGRAPHX_CACHE_DIR) to a folder of this model, size and precision only, that outlives the process.",
        "microsoft/onnxruntime migraphx_execution_provider.cc of 1.23 and later",
        covers=("save-failed", "file-missing", "ort-cache-dir-missing", "ort-cache-miss"),
    ),
    KnownFailure(
        "ort-cache-dir-missing", "onnxruntime", "usage", "cause", (b"write_buffer: failure",),
        rf"write\w{{0,20}}: failure opening file: [\"']{{0,2}}(?P<folder>[^\"']{{1,300}}?)/{_HASHED}",
        "ONNX Runtime cannot save its compiled model in `{folder}`: it does not make that folder itself and stops when "
        "it cannot write to it.",
        "`mkdir -p {folder}` and make it writable: one folder for each model, size and precision.",
        "microsoft/onnxruntime migraphx_execution_provider.cc; observed with ONNX Runtime 1.27.1",
        covers=("save-failed", "file-missing", "ort-cache-miss"),
    ),
    KnownFailure(
        "ort-cache-miss", "onnxruntime", "warning", "note", (b"failure opening file",),
        rf"failure opening file: .{{0,300}}?(?P<file>{_HASHED})",
        "No failure: ONNX Runtime looked for {file} in its cache, did not find it, and compiles now. That can take "
        "minutes to hours.",
        "Run it once where time does not matter, and keep that cache folder: one for each model, size and precision.",
        "ROCm/AMDMIGraphX pull request 3473",
        covers=("file-missing",),
    ),
    KnownFailure(
        "ort-option", "onnxruntime", "usage", "cause", (b"invalid migraphx ep option", b"unknown provider option"),
        r"(?:invalid migraphx ep option: |unknown provider option: )[\"']?(?P<option>[\w.]{1,80})",
        "This build of ONNX Runtime has no MIGraphX option `{option}`, although the documentation may name it. Python "
        "then goes on with the CPU alone.",
        "Drop it, and set ORT_MIGRAPHX_MODEL_CACHE_PATH instead for the cache (plugin provider: option `cache_dir`); "
        "check `session.get_providers()`.",
        "microsoft/onnxruntime issue 25379",
    ),
    KnownFailure(
        "ort-provider-missing", "onnxruntime", "usage", "cause", (b"specified provider 'migraphx",),
        r"specified provider 'migraphxexecutionprovider' is not in available provider names",
        "This ONNX Runtime was built without MIGraphX, and runs on the CPU.",
        "Install AMD's build (`onnxruntime-migraphx`), and remove the plain `onnxruntime` package beside it.",
        "microsoft/onnxruntime onnxruntime_inference_collection.py",
    ),
    KnownFailure(
        "ort-on-cpu", "onnxruntime", "warning", "catch-all", (b"falling back to [",),
        r"falling back to \[(?P<providers>[^\]]{0,200})\] and retrying",
        "ONNX Runtime gave up MIGraphX and goes on with {providers}: right, but slow.",
        "See the error before it, and check `session.get_providers()` after making the session.",
        "microsoft/onnxruntime onnxruntime_inference_collection.py",
    ),
    KnownFailure(
        "epcontext-arch", "onnxruntime", "mismatch", "cause", (b"ep context binary was compiled for gpu",),
        r"ep context binary was compiled for gpu architecture '(?P<made>[^']{1,80})' but current gpu is "
        r"'(?P<here>[^']{1,80})'",
        "The EPContext model was compiled for {made} and this GPU is {here}; the strings must agree in every letter.",
        "Make the EPContext model anew on {here} (session option `ep.context_enable`): one for each GPU architecture.",
        "onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep_ctx.cc",
    ),
    KnownFailure(
        "epcontext-sdk", "onnxruntime", "mismatch", "cause", (b"ep context binary was compiled with migraphx",),
        r"ep context binary was compiled with migraphx sdk (?P<made>[\w.+-]{1,40}) but current sdk is "
        r"(?P<here>[\w.+-]{1,40}?)\.? ",
        "The EPContext model was compiled with MIGraphX {made} and this is {here}: another major release is refused.",
        "Make the EPContext model anew with the MIGraphX here (session option `ep.context_enable`).",
        "onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep_ctx.cc",
    ),
    KnownFailure(
        "epcontext-path", "onnxruntime", "usage", "cause", (b"ep_cache_context",),
        r"for security purpose, the .{0,60}?ep_cache_context.{0,60}?must (?:contain a relative|not include)",
        "The EPContext model names its .mxr by an absolute path or one with `..`; only a name inside its own folder is "
        "taken.",
        "Put the .mxr beside the model and name it without a folder.",
        "onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep_ctx.cc",
        covers=("epcontext-attribute",),
    ),
    KnownFailure(
        "epcontext-file", "onnxruntime", "usage", "cause", (b"the mxr cache file does not exist",),
        rf"the mxr cache file does not exist: {_FILE}",
        "The EPContext model needs `{file}`, which is not there: the two must travel together.",
        "Put it back, or make both anew (session option `ep.context_enable`). If `cache_dir` is set, it is looked for "
        "there.",
        "onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep_ctx.cc",
    ),
    KnownFailure(
        "epcontext-load", "onnxruntime", "mismatch", "symptom",
        (b"loading mxr file failed", b"loading embedded mxr binary failed"),
        r"loading (?:mxr file|embedded mxr binary) failed: (?P<file>[^\s\"]{1,300})?",
        "MIGraphX refused the .mxr of an EPContext model, and the provider does not say why: another format version, "
        "another GPU, or damage. With embedded files two processes may have overwritten each other's temporary file.",
        "`mxr check FILE` on that .mxr says why; prefer one beside the model to an embedded one.",
        "onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep_ctx.cc",
    ),
    KnownFailure(
        "epcontext-no-provider", "onnxruntime", "usage", "cause",
        (b"is not compatible with any execution provider", b"no epcontext node found for migraphx"),
        r"epcontext node generated by '?(?P<by>[^']{0,80})'? is not compatible with any execution provider|"
        r"no epcontext node found for migraphx",
        "No provider in this session takes the EPContext model. ONNX Runtime's built-in MIGraphX provider (up to 1.27) "
        "cannot; the plugin provider can, for those that MIGraphX made.",
        "Load the plugin provider, or use the plain ONNX model.",
        "onnxruntime/onnxruntime-ep-amdgpu; observed with ONNX Runtime 1.27.1",
    ),
    KnownFailure(
        "epcontext-attribute", "onnxruntime", "damaged", "cause", (b"`embed_mode` attribute", b"ep_cache_context"),
        r"`embed_mode` attribute must be|`ep_cache_context` attribute must be|ep_cache_context is empty for embed_mode",
        "The EPContext node of the model is not well made: an attribute is missing, empty or of the wrong type.",
        "Make the EPContext model anew (session option `ep.context_enable`).",
        "onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep_ctx.cc",
    ),
    KnownFailure(
        "epcontext-dynamic", "onnxruntime", "usage", "cause", (b"ep.context_enable is set but",),
        r"ep\.context_enable is set but the graph has dynamic input shapes",
        "An EPContext model can be made only of a model whose shapes are all fixed.",
        "Fix every dimension in the ONNX model first: one model per batch.",
        "onnxruntime/onnxruntime-ep-amdgpu src/migraphx/mgx_ep.cc",
    ),
    KnownFailure(
        "ort-name-zero", "onnxruntime", "warning", "note", (b"-0.mxr",),
        r"\b(?P<file>[0-9a-f]{4,8}(?:-[0-9a-f]{1,16}){2,3}-0\.mxr)",
        "{file} is the name that ONNX Runtime gives to any first shape of a model with open dimensions: it may hold a "
        "program for other shapes, and is not checked.",
        "Delete it, and fix the shapes in the ONNX model: one model and one cache folder per batch.",
        "observed with ONNX Runtime 1.27.1; ROCm/onnxruntime pull request 235",
    ),
    KnownFailure(
        "ort-name-collision", "onnxruntime", "warning", "note",
        (b"-519c70b1cf0f20ca.mxr", b"-10ac3d27e86223a7.mxr", b"-be2deffdcd788822.mxr", b"-47afe3195360aea.mxr",
         b"-36a8840bfe2de0d1.mxr"),
        r"(?P<file>[0-9a-f]{4,8}(?:-[0-9a-f]{1,16}){3}\.mxr)",
        "{file} comes from an ONNX Runtime that hashes only part of the shape: every size with the same batch and rank "
        "gets this name. Weights and precision are not in it either.",
        "Never share such a folder between models, sizes or precisions: one folder each.",
        "ROCm/onnxruntime pull requests 235, 237, 245, 246; microsoft/winml-cli issue 1300",
    ),
    KnownFailure(
        "ort-compiling", "onnxruntime", "warning", "note", (b"model compile: begin",),
        r"model compile: begin",
        "ONNX Runtime is compiling and has not finished in this log. It looks like a hang, keeps all cores busy, and "
        "can take from minutes to hours.",
        "Let it run, with longer time limits, and keep its cache folder for the next time.",
        "ROCm/AMDMIGraphX issues 4029 and 4164",
        unless=b"model compile: complete",
    ),
    KnownFailure(
        "ort-status", "onnxruntime", "permanent", "catch-all", (b"non-zero status code returned while running mgx",),
        r"non-zero status code returned while running (?P<node>mgx\w{0,160}) node",
        "ONNX Runtime's MIGraphX part failed while running; its status says no more than that.",
        "Look for MIGraphX's own message before it on standard error; `mxr check FILE` on the cached .mxr compares it "
        "with this GPU.",
        "microsoft/onnxruntime; ROCm/AMDMIGraphX issue 4141",
        covers=("failed-to-call",),
    ),
    # --- AMD Inference Server ---
    KnownFailure(
        "amdinfer-model-file", "amdinfer", "usage", "cause",
        (b"migraphx worker cannot open the model file", b"not found or can't be opened"),
        r"(?:migraphx worker cannot open the model file|model file) (?P<file>\S{1,300}?)\.? (?: ?does this path exist|"
        r"not found or can.{0,2}t be opened)",
        "The server found neither the compiled NAME_b64.mxr (64 or the batch asked for) nor the ONNX file {file}. A "
        "file called plainly NAME.mxr is never loaded.",
        "`mxr fetch MODEL --for amdinfer --batch 64 -o FOLDER` writes it under the name that the server looks for.",
        "Xilinx/inference-server src/amdinfer/workers/migraphx.cpp, doInit",
    ),
    KnownFailure(
        "amdinfer-no-model", "amdinfer", "usage", "cause",
        (b"model file argument missing from model load", b"migraphxworker parameters required"),
        r"model file argument missing from model load request|migraphxworker parameters required",
        "The request to load a model did not say which file.",
        'Give the parameter "model" with the path; its suffix does not matter, NAME_b64.mxr beside it is looked for.',
        "Xilinx/inference-server src/amdinfer/workers/migraphx.cpp, doInit",
    ),
    KnownFailure(
        "amdinfer-type", "amdinfer", "usage", "cause", (b"model and input data types don't match",),
        r"model and input data types don't match: (?P<want>\S{1,40}) vs (?P<got>\S{1,40})",
        "The request's tensor is {got} and the program takes {want}.",
        "Send that type; `mxr inspect FILE` lists the inputs.",
        "Xilinx/inference-server src/amdinfer/workers/migraphx.cpp, doRun",
    ),
    KnownFailure(
        "amdinfer-gpu", "amdinfer", "permanent", "catch-all", (b"server could not connect to a gpu",),
        r"server could not connect to a gpu",
        "The server adds this sentence to every error of MIGraphX, so it need not be about the GPU: a file for another "
        "GPU or another MIGraphX ends the same way.",
        "`mxr check NAME_b64.mxr` in the server's container tells which; `mxr host` shows whether there is a GPU.",
        "Xilinx/inference-server src/amdinfer/workers/migraphx.cpp, doInit",
        covers=("failed-to-call",),
    ),
    # --- HIP ---
    KnownFailure(
        "hip-isa", "hip", "mismatch", "cause", (b"is not compatible with the device isa",),
        rf"program isa {_GFX % 'made'}.{{0,40}}? is not compatible with the device isa {_GFX % 'arch'}|"
        r"is not compatible with the device isa",
        "The kernels are for {made} and this GPU is {arch}. If only sramecc or xnack differ, the GPU runs in another "
        "mode than the one compiled for.",
        "`mxr fetch MODEL --arch {arch}` gets the right one; for xnack, HSA_XNACK=0 may be what is missing.",
        "ROCm/clr rocclr/device/devprogram.cpp",
    ),
    KnownFailure(
        "hip-bundle", "hip", "mismatch", "cause", (b"cannot find co in the bundle",),
        rf"cannot find co in the bundle(?: (?P<file>(?!for )\S{{1,300}}))?(?: for isa:? {_GFX % 'arch'})?",
        "HIP finds no kernels for this GPU ({arch}) in {file}. If that is a ROCm library and not a program, the "
        "library, not the .mxr, lacks this GPU.",
        "`mxr check FILE` for a program: `mxr fetch MODEL --arch {arch}`. For a library: a ROCm that supports this "
        "GPU.",
        "ROCm/clr hipamd/src/hip_fatbin.cpp",
    ),
    KnownFailure(
        "hip-no-binary", "hip", "mismatch", "symptom",
        (b"hiperrornobinaryforgpu", b"no kernel image is available",
         b"unable to find code object for all current devices"),
        r"hiperrornobinaryforgpu|no kernel image is available for execution on the device|"
        r"unable to find code object for all current devices",
        "What was loaded has no kernels for this GPU: the program, or the library, was built for another.",
        "`mxr check FILE` names both; `mxr fetch MODEL` on this host gets one for this GPU.",
        "HIP error 209; microsoft/onnxruntime issue 12662",
        covers=("hip-failure",),
    ),
    KnownFailure(
        "hip-invalid-function", "hip", "mismatch", "symptom",
        (b"hiperrorinvaliddevicefunction", b"invalid device function"),
        r"hiperrorinvaliddevicefunction|(?:hip|failed|error).{0,80}?invalid device function",
        "A kernel was called that does not exist for this GPU: the program, or the library, was built for another.",
        "`mxr check FILE` names both; `mxr fetch MODEL` on this host gets one for this GPU.",
        "HIP error 98",
        covers=("hip-failure",),
    ),
    KnownFailure(
        "hip-invalid-image", "hip", "mismatch", "symptom",
        (b"hiperrorinvalidimage", b"device kernel image is invalid", b"hiperrorinvalidkernelfile"),
        r"hiperrorinvalidimage|device kernel image is invalid|hiperrorinvalidkernelfile",
        "HIP does not take the code object: it is for another GPU, or damaged.",
        "`mxr check FILE` compares it with this GPU; `mxr inspect FILE` shows its code objects.",
        "HIP errors 200 and 218",
        covers=("hip-failure",),
    ),
    KnownFailure(
        "hip-no-device", "hip", "usage", "cause",
        (b"hiperrornodevice", b"no rocm-capable device is detected", b"no hip gpus are available"),
        r"hiperrornodevice\b|no rocm-capable device is detected|no hip gpus are available",
        "HIP sees no GPU: none is handed to this container, the user may not open /dev/kfd, or a *_VISIBLE_DEVICES "
        "variable hides it.",
        "Run with --device=/dev/kfd --device=/dev/dri and the groups video and render; `mxr host` shows what is "
        "visible.",
        "HIP error 100",
        covers=("hip-failure",),
    ),
    KnownFailure(
        "kfd-permission", "hip", "usage", "cause", (b"/dev/kfd", b"rock module is not loaded"),
        r"(?:unable|failed|cannot|could not).{0,40}/dev/kfd|/dev/kfd.{0,60}?(?:permission denied|no such file)|"
        r"rock module is not loaded",
        "This process may not use the GPU: /dev/kfd is missing, or the user is not in its group.",
        "Pass --device=/dev/kfd --device=/dev/dri and --group-add with the host's numeric group of /dev/kfd; on a bare "
        "host `modprobe amdgpu`.",
        "ROCm installation guide; rocminfo",
    ),
    KnownFailure(
        "illegal-access", "hip", "hang", "symptom",
        (b"hip failure 700", b"hiperrorillegaladdress", b"an illegal memory access was encountered",
         b"memory access fault by gpu"),
        r"hip failure 700|hiperrorillegaladdress|an illegal memory access was encountered|memory access fault by gpu",
        "A kernel touched memory that is not its own, and the GPU context is lost: a program for other shapes, for "
        "another GPU, or a fault of MIGraphX or the driver.",
        f"Restart the process; {_CHECK}; then look at `dmesg`.",
        "HIP error 700; public reports with the MIGraphX provider",
    ),
    KnownFailure(
        "hip-failure", "hip", "permanent", "symptom", (b"hip failure ",),
        r"hip failure (?P<number>(?!700\b|2:)\d{1,4}): ?(?P<why>[^;\"]{1,120})",
        "HIP failed with error {number}: {why}.",
        f"{_CHECK}; `mxr host` shows the GPU and ROCm here.",
        "microsoft/onnxruntime core/providers/migraphx/migraphx_call.cc",
    ),
    # --- the kernel, and how processes die ---
    KnownFailure(
        "gpu-hang", "kernel", "hang", "cause",
        (b"hw exception by gpu", b"mes failed to respon", b"mes might be in unrecoverable",
         b"failed to respond to msg=",
         b"ring gfx", b"ring comp", b"ring sdma", b"gpu reset begin"),
        r"hw exception by gpu.{0,80}?reason ?: ?gpu hang|mes(?:\(\d,\d\))? failed to respon|"
        r"mes might be in unrecoverable state|ring \S{1,40} timeout|gpu reset begin",
        "The GPU hung, and the driver resets it or cannot. Every process on it is lost; the program or the compile "
        "that ran may be the reason.",
        "Stop using this GPU until a small test runs on it; reboot if it does not. `dmesg | grep amdgpu` shows more; "
        "try the job on another host before trying it here again.",
        "amdgpu driver; ROCm/legacy-rocm-build issue 6512; immich-app/immich issue 29560",
    ),
    KnownFailure(
        "out-of-memory-kill", "kernel", "transient", "cause",
        (b"out of memory: killed process", b"oomkilled", b"oom_kill", b"oom-kill", b"exit code 137",
         b"exited with code 137",
         b"exit status 137", b"signal 9"),
        r"out of memory: killed process|\boomkilled\b(?!\"?: ?false)|oom_kill [1-9]|oom-kill:|"
        r"exit(?:ed)?(?: with)? (?:code|status):? 137\b|killed by signal 9\b",
        "The process was killed from outside (SIGKILL), nearly always because it used more memory than it was given. "
        "Compiles need 32 GiB and more.",
        "Give it more memory, or leave it to a bigger host: `mxr fetch MODEL --on-miss ask`.",
        "Linux, Docker and Kubernetes; ROCm/AMDMIGraphX issue 4164",
    ),
    KnownFailure(
        "heap-corruption", "kernel", "transient", "symptom",
        (b"corrupted size vs. prev_size", b"malloc(): ", b"free(): invalid", b"double free or corruption",
         b"corrupted double-linked list"),
        r"corrupted size vs\. prev_size|malloc\(\): (?:corrupted|invalid|mem|unaligned)|free\(\): invalid|double "
        r"free or corruption|"
        r"corrupted double-linked list",
        "The process's memory was overwritten. With ONNX Runtime's cache it happens when a cached program is for "
        "another input size than the one asked for.",
        "Empty the cache folder and give each model, size and precision its own.",
        "glibc; ROCm/onnxruntime pull request 235; immich-app/immich issue 28330",
    ),
    KnownFailure(
        "segfault", "kernel", "transient", "symptom",
        (b"segmentation fault", b"sigsegv", b"exit code 139", b"exited with code 139", b"exit status 139",
         b"segfault at "),
        r"segmentation fault|\bsigsegv\b|exit(?:ed)?(?: with)? (?:code|status):? 139\b|segfault at [0-9a-f]{1,16} ",
        "The process crashed (segmentation fault). MIGraphX does so on damaged or hostile files, and on some models "
        "and GPUs.",
        "`mxr inspect FILE` tells without MIGraphX whether the file is sound. If it is, try once more, then another "
        "MIGraphX.",
        "observed by running MIGraphX 2.16; ROCm/AMDMIGraphX issues 1246, 1329, 2243",
    ),
    KnownFailure(
        "aborted", "kernel", "permanent", "catch-all",
        (b"instance of 'migraphx::", b"sigabrt", b"aborted (core dumped)", b"exit code 134",
         b"exited with code 134", b"exit status 134"),
        r"instance of 'migraphx::[\w:]{0,60}exception'|\bsigabrt\b|aborted \(core dumped\)|"
        r"exit(?:ed)?(?: with)? (?:code|status):? 134\b",
        "The program stopped itself over an error that nobody caught; the error's text stands near it, after "
        "`what():`.",
        "Give that text too: `mxr explain < LOG`.",
        "migraphx-driver ends with SIGABRT on every exception",
    ),
    # --- MIGraphX: the catch-all of its C and C++ interface ---
    KnownFailure(
        "failed-to-call", "migraphx", "permanent", "catch-all", (b"failed to call function",),
        r"failed to call function",
        "MIGraphX's C and C++ interface says this for every error; the real one was printed on standard error before "
        "it.",
        "Look there for it, or let `mxr check FILE` say whether the file fits this GPU and this MIGraphX.",
        "MIGraphX src/api/include/migraphx/migraphx.hpp",
    ),
    KnownFailure(
        "no-migraphx", "migraphx", "usage", "cause",
        (b"no module named 'migraphx'", b"module 'migraphx' has no attribute"),
        r"no module named 'migraphx'|module 'migraphx' has no attribute",
        "Python does not find MIGraphX, or finds the empty package of that name from the public index.",
        "`pip uninstall migraphx`, install MIGraphX from ROCm's packages, and add /opt/rocm/lib to PYTHONPATH.",
        "observed; the package named migraphx on PyPI holds no code",
    ),
)
# fmt: on
