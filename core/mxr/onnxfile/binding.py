"""Computes the shapes of a request: the dims of every input of a model, with no dim left unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxr.errors import UsageError
from mxr.facts import all_stated, stated

from .graph import MAX_DIM, Dim, OnnxInput, OnnxModel

NOT_TENSORS = {"sequence": "a sequence", "map": "a map", "optional": "optional", "sparse": "a sparse tensor"}
"""Kinds of inputs that MIGraphX has no type for. Source: AMDMIGraphX, src/onnx/onnx_parser.cpp, parse_type."""


def bind_inputs(
    model: OnnxModel, *, batch: int | None, inputs: Mapping[str, tuple[Dim, ...]]
) -> dict[str, tuple[Dim, ...]]:
    """Return the dims of every input, from `inputs` first, then from symbols that `inputs` bind, then from `batch`.

    A symbol has the same value in all inputs; only where `inputs` give it two, each input has its own, because MIGraphX
    takes the dims by the names of the inputs (`differing_symbols`). `batch` sets the first dim of each input where it
    is still unknown. A range (min, max, optimals) does not bind its symbol in other inputs. Raises `UsageError`, which
    lists the inputs of the model, if a value does not match the model or a dim stays unknown.
    """
    symbols = _bound_symbols(model, batch, inputs)
    bound: dict[str, tuple[Dim, ...]] = {}
    for item in model.inputs:
        values = inputs[item.name] if item.name in inputs else _known_dims(item, batch, symbols)
        if values is not None:
            bound[item.name] = tuple(values)
    if len(bound) < len(model.inputs):
        raise _unbound_error(model, batch, symbols, [item for item in model.inputs if item.name not in bound])
    return bound


def bind_known_dims(
    model: OnnxModel, *, batch: int | None, inputs: Mapping[str, tuple[Dim, ...]]
) -> dict[str, tuple[Dim | None, ...] | None]:
    """Return the dims of every input like `bind_inputs`, with None for a dim that stays unknown.

    An input of unknown rank is None. Raises `UsageError` if a value does not match the model.
    """
    symbols = _bound_symbols(model, batch, inputs)
    return {
        item.name: tuple(inputs[item.name]) if item.name in inputs else _dims_so_far(item, batch, symbols)
        for item in model.inputs
    }


def _bound_symbols(model: OnnxModel, batch: int | None, inputs: Mapping[str, tuple[Dim, ...]]) -> dict[str, Dim]:
    for item in model.inputs:
        if item.elem_type in NOT_TENSORS:
            raise UsageError(
                f"Input {item.name} of the model is {NOT_TENSORS[item.elem_type]}. MIGraphX takes only tensors.",
                hint="Export the model with a tensor in its place. No worker can compile this one.",
            )
    known = {item.name: item for item in model.inputs}
    for name in inputs:
        if name not in known:
            raise _error(model, f"The model has no input {name}.")
    symbols: dict[str, Dim] = {}
    for name, dims in inputs.items():
        _check_dims(model, known[name], dims)
    for symbol, values in _values_of_symbols(model, inputs).items():
        if len(values) == 1:
            symbols[symbol] = values[0]
    if batch is not None:
        _bind_batch(model, batch, inputs, symbols)
    return symbols


def differing_symbols(model: OnnxModel, inputs: Mapping[str, tuple[Dim, ...]]) -> dict[str, list[Dim]]:
    """Return the symbols to which `inputs` give several values, with these. MIGraphX does not compare them.

    Source: AMDMIGraphX, src/onnx/onnx_parser.cpp, map_input_dims.
    """
    return {symbol: values for symbol, values in _values_of_symbols(model, inputs).items() if len(values) > 1}


def _values_of_symbols(model: OnnxModel, inputs: Mapping[str, tuple[Dim, ...]]) -> dict[str, list[Dim]]:
    found: dict[str, list[Dim]] = {}
    for item in model.inputs:
        for own, dim in zip(item.dims or (), inputs.get(item.name, ()), strict=False):
            if isinstance(own, str) and dim not in found.setdefault(own, []):
                found[own].append(dim)
    return found


def _error(model: OnnxModel, message: str, hint: str = "") -> UsageError:
    hint = hint or f"Set the dims with {stated('inputs', 'NAME=1,3,224,224')}."
    shown = [str(item) for item in model.inputs]
    more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""
    return UsageError(
        f"{message} Its inputs: {', '.join(shown[:12]) or 'none'}{more}.", hint=hint, context={"inputs": shown}
    )


def _check_dims(model: OnnxModel, item: OnnxInput, dims: tuple[Dim, ...]) -> None:
    if not all(dim == 0 or _is_valid(dim) for dim in dims[1:]) or not all(map(_is_valid, dims[:1])):
        raise _error(
            model,
            f"Input {item.name}: a dim is a number from 1 (after the first: from 0), or MIN..MAX with optimals.",
        )
    if item.dims is None:
        return
    if len(dims) != len(item.dims):
        raise _error(model, f"Input {item.name} has {len(item.dims)} dims, not {len(dims)}.")
    for place, (dim, own) in enumerate(zip(dims, item.dims, strict=True)):
        if isinstance(own, int) and dim != own:
            raise _error(model, f"Dim {place} of input {item.name} is {own} in the model, not {_show(dim)}.")


def _is_valid(dim: Dim) -> bool:
    if isinstance(dim, int):
        return 1 <= dim <= MAX_DIM
    low, high, optimals = dim
    return 1 <= low <= high <= MAX_DIM and all(low <= optimal <= high for optimal in optimals)


def _show(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else f"{dim[0]}..{dim[1]}"


def _bind_batch(model: OnnxModel, batch: int, inputs: Mapping[str, tuple[Dim, ...]], symbols: dict[str, Dim]) -> None:
    if not _is_valid(batch):
        raise _error(model, f"The batch size {batch} is invalid.", f"Set {stated('batch')} to a number from 1.")
    first = {item.name: item.dims[0] for item in model.inputs if item.dims and not isinstance(item.dims[0], int)}
    unbound = {name: own for name, own in first.items() if name not in inputs}
    names = list(dict.fromkeys(own for own in unbound.values() if isinstance(own, str)))
    for own in names:
        if symbols.get(own, batch) != batch:
            raise _error(model, f"{own} cannot be both {_show(symbols[own])} and {batch} (from {stated('batch')}).")
    fresh = [own for own in names if own not in symbols]
    if len(fresh) > 1:
        raise _error(model, f"{stated('batch')} is ambiguous, because the first dims differ: {' or '.join(fresh)}.")
    symbols |= dict.fromkeys(fresh, batch)
    if not unbound:
        checked = [item for item in model.inputs if item.name in first] or [item for item in model.inputs if item.dims]
        for item in checked:
            value = inputs[item.name][0] if item.name in inputs else (item.dims or (None,))[0]
            if value != batch:
                raise _error(model, f"{stated('batch', batch)} does not match: the first dim of {item.name} is fixed.")


def _dims_so_far(item: OnnxInput, batch: int | None, symbols: Mapping[str, Dim]) -> tuple[Dim | None, ...] | None:
    if item.dims is None:
        return None
    dims: list[Dim | None] = []
    for place, own in enumerate(item.dims):
        # A range does not bind the symbol in other inputs: two dims with the same range need not be equal.
        value = symbols.get(own) if isinstance(own, str) else own
        dims.append(batch if own is None and place == 0 else value if isinstance(value, int) else None)
    return tuple(dims)


def _known_dims(item: OnnxInput, batch: int | None, symbols: Mapping[str, Dim]) -> tuple[Dim, ...] | None:
    dims = _dims_so_far(item, batch, symbols)
    if dims is None or None in dims:
        return None
    return tuple(dim for dim in dims if dim is not None)


def _unbound_error(
    model: OnnxModel, batch: int | None, symbols: Mapping[str, Dim], unbound: Sequence[OnnxInput]
) -> UsageError:
    flags, only_first_dims = list[tuple[str, str]](), batch is None
    for item in unbound:
        dims = _dims_so_far(item, batch, symbols)
        if dims is None or None in dims[1:]:
            only_first_dims = False
        likely = [_example(place, dim, len(dims)) for place, dim in enumerate(dims)] if dims else ["1,3,224,224"]
        flags.append(("inputs", f"{item.name}={','.join(likely)}"))
    example = all_stated(flags[:4]) + (" and so on" if len(flags) > 4 else "")
    batch_size = f"{stated('batch', 'N')}, or set " if only_first_dims else ""
    hint = f"Set {batch_size}the dims, for example: {example}"
    names = ", ".join(item.name for item in unbound[:12])
    return _error(model, f"Some dims are unknown, in the inputs {names}.", hint)


def _example(place: int, dim: Dim | None, rank: int) -> str:
    return "1" if dim is None and place == 0 else ("224" if rank == 4 else "128") if dim is None else str(dim)
