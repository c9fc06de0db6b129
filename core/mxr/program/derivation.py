"""Builds the description of a program from its header and nodes, with the certainty of each fact."""

from __future__ import annotations

from mxr.artifact.target import ROCM_OF
from mxr.program.description import Basis, Certainty, Description, Header, Kernels, Sizes
from mxr.program.header import KNOWN_FILE_VERSIONS
from mxr.program.isa import read_isa
from mxr.program.nodes import Nodes

_CERTAIN, _STRONG, _HEURISTIC, _UNKNOWN = Certainty


def derive_description(header: Header, nodes: Nodes, file_size: int, trailing: int) -> Description:
    """Return the description of a program; `trailing` is the number of bytes after it in the file."""
    sure = _header_grounds(header)
    precisions, sure["precisions"] = nodes.precision.derive()
    archs, sure["archs"] = _archs(header, nodes)
    offload_copy, sure["offload_copy"] = _offload_copy(header, nodes)
    sure["inputs"], sure["outputs"] = _inputs_ground(nodes), _outputs_ground(nodes)
    sure["libraries"] = Basis(_CERTAIN, "operators")
    sure["sizes"] = Basis(_CERTAIN, "lengths in the file")
    code = nodes.code_objects
    largest = nodes.largest_inputs() if header.flavour == "hygon" else {}
    return Description(
        header=header,
        archs=archs,
        mixed_arch=code.are_mixed(),
        inputs={name: largest.get(name, shape) for name, shape in nodes.inputs().items()},
        outputs=nodes.outputs(),
        precisions=precisions,
        offload_copy=offload_copy,
        libraries=tuple(sorted(nodes.libraries)),
        sizes=Sizes(file_size, nodes.literal_bytes, code.bytes),
        kernels=Kernels(code.count, code.mlir, nodes.made_at_run_time, code.unread),
        operators=dict(nodes.operators.most_common()),
        types=dict(nodes.types.most_common()),
        modules=nodes.modules,
        debug_symbols=nodes.debug_symbols,
        rocm_hint=_rocm(header),
        sure=sure,
        warnings=tuple(_warnings(header, nodes)),
        notes=tuple(_notes(header, nodes, trailing)),
        reshapes=bool(largest),
    )


def _rocm(header: Header) -> str | None:
    if header.migraphx is None or header.flavour != "upstream":
        return None
    return ROCM_OF.get(".".join(header.migraphx.split(".")[:2]))


def _header_grounds(header: Header) -> dict[str, Basis]:
    from_header = Basis(_CERTAIN, "header")
    known = header.file_version in KNOWN_FILE_VERSIONS
    version = from_header if header.migraphx else Basis(_UNKNOWN, "MIGraphX before 2.7 does not write its version")
    official = Basis(_HEURISTIC, "official builds of this MIGraphX")
    hint = official if _rocm(header) else Basis(_UNKNOWN, "no known release")
    return {
        "file_version": from_header,
        "migraphx": version,
        "rocm_hint": hint,
        "flavour": Basis(_STRONG if known else _HEURISTIC, "layout of the header"),
        "compiled": from_header,
        "targets": from_header,
    }


def _archs(header: Header, nodes: Nodes) -> tuple[tuple[str, ...], Basis]:
    code = nodes.code_objects
    if code.archs():
        return code.archs(), code.ground()
    named = tuple(sorted(str(isa) for name in header.gfx_names if (isa := read_isa(name)) is not None))
    if named:
        return named, Basis(_STRONG, "arch named in the header")
    if code.count:
        return (), code.ground()
    if not header.compiled:
        return (), Basis(_UNKNOWN, "the program is not compiled and has no arch")
    if "gpu" not in header.targets:
        return (), Basis(_UNKNOWN, f"no GPU arch: the target is {', '.join(header.targets)}")
    return (), Basis(_UNKNOWN, "no code object in the file: only library calls, or kernels compiled at run time")


def _offload_copy(header: Header, nodes: Nodes) -> tuple[bool | None, Basis]:
    if header.offload_copy is not None:
        return header.offload_copy, Basis(_CERTAIN, "header")
    if "gpu" not in header.targets:
        return None, Basis(_UNKNOWN, "only GPU programs show it")
    if nodes.copies_param:
        return True, Basis(_STRONG, "the program copies its inputs to the GPU")
    if nodes.output_buffers():
        return False, Basis(_STRONG, "the caller supplies the output buffers")
    return None, Basis(_UNKNOWN, "the program neither copies inputs nor has output buffers")


def _inputs_ground(nodes: Nodes) -> Basis:
    if not nodes.params:
        return Basis(_CERTAIN, "the program has no parameters")
    buffers = len(nodes.params) - len(nodes.inputs())
    excluded = f", except {buffers} with the names of buffers" if buffers else ""
    return Basis(_STRONG if buffers else _CERTAIN, "parameters of the program" + excluded)


def _outputs_ground(nodes: Nodes) -> Basis:
    if nodes.returned:
        return Basis(_STRONG, "shapes of the returned values")
    return Basis(_HEURISTIC if nodes.outputs() else _UNKNOWN, "the program has no return node with inputs")


def _warnings(header: Header, nodes: Nodes) -> list[str]:
    found = nodes.code_objects.warnings()
    if nodes.short_literals:
        found.append(
            f"{nodes.short_literals} of the weights have fewer bytes than their shapes require: the file is damaged, "
            "and MIGraphX would read beyond their end."
        )
    if not header.compiled and (nodes.on_gpu or nodes.on_ref):
        found.append("The nodes are compiled, but the header names no target: MIGraphX would load it as uncompiled.")
    return found


def _notes(header: Header, nodes: Nodes, trailing: int) -> list[str]:
    found = []
    if header.file_version not in KNOWN_FILE_VERSIONS:
        found.append(f"mxr does not know file version {header.file_version}: facts may be missing.")
    if header.file_version == 5:
        found.append("Written by MIGraphX 2.0 to 2.6 (ROCm 5.0 to 5.6): the file does not say which.")
    if nodes.libraries and "gpu" in header.targets:
        found.append(
            f"Calls {', '.join(sorted(nodes.libraries))}: the file does not contain the kernels of these libraries."
        )
    if nodes.made_at_run_time:
        found.append(f"{nodes.made_at_run_time} kernels are compiled only when the program runs.")
    if trailing:
        found.append(f"{trailing} bytes follow the program; MIGraphX ignores them.")
    return found
