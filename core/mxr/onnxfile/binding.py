"""The shapes of a request: every input of a model with all its dims closed, or an error that shows the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxr.errors import Usage

from .values import LARGEST_DIM, Dim, OnnxInput, OnnxModel


def bind_inputs(
    model: OnnxModel, *, batch: int | None, inputs: Mapping[str, tuple[Dim, ...]]
) -> dict[str, tuple[Dim, ...]]:
    """The dims of every input, closed by `inputs` (they win), by symbols that these bind, and by `batch`.

    One symbol has one value in all inputs. `batch` closes the first dim of each input that is still open there. Raises
    Usage, showing the inputs, for whatever does not fit or stays open.
    """
    known = {item.name: item for item in model.inputs}
    for name in inputs:
        if name not in known:
            raise _misfit(model, f"The model has no input {name}.")
    symbols: dict[str, Dim] = {}
    for name, dims in inputs.items():
        _learn(model, known[name], dims, symbols)
    if batch is not None:
        _learn_batch(model, batch, inputs, symbols)
    bound: dict[str, tuple[Dim, ...]] = {}
    for item in model.inputs:
        closed = inputs[item.name] if item.name in inputs else _closed(item, batch, symbols)
        if closed is not None:
            bound[item.name] = tuple(closed)
    if len(bound) < len(model.inputs):
        raise _left_open(model, batch, symbols, [item for item in model.inputs if item.name not in bound])
    return bound


def _misfit(model: OnnxModel, message: str, hint: str = "Say the dims with --input NAME=1,3,224,224.") -> Usage:
    shown = [str(item) for item in model.inputs]
    more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""
    return Usage(f"{message} Its inputs: {', '.join(shown[:12]) or 'none'}{more}.", hint=hint, detail={"inputs": shown})


def _learn(model: OnnxModel, item: OnnxInput, dims: tuple[Dim, ...], symbols: dict[str, Dim]) -> None:
    if not all(map(_sound, dims)):
        raise _misfit(model, f"Input {item.name}: a dim is a number from 1, or MIN..MAX with optimals between them.")
    if item.dims is None:
        return
    if len(dims) != len(item.dims):
        raise _misfit(model, f"Input {item.name} has {len(item.dims)} dims, not {len(dims)}.")
    for place, (dim, own) in enumerate(zip(dims, item.dims, strict=True)):
        if isinstance(own, int) and dim != own:
            raise _misfit(model, f"Dim {place} of input {item.name} is {own} in the model, not {_words(dim)}.")
        if isinstance(own, str) and symbols.setdefault(own, dim) != dim:
            raise _misfit(model, f"{own} is asked to be both {_words(symbols[own])} and {_words(dim)}.")


def _sound(dim: Dim) -> bool:
    if isinstance(dim, int):
        return 1 <= dim <= LARGEST_DIM
    low, high, optimals = dim
    return 1 <= low <= high <= LARGEST_DIM and all(low <= optimal <= high for optimal in optimals)


def _words(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else f"{dim[0]}..{dim[1]}"


def _learn_batch(model: OnnxModel, batch: int, inputs: Mapping[str, tuple[Dim, ...]], symbols: dict[str, Dim]) -> None:
    if not _sound(batch):
        raise _misfit(model, f"A batch of {batch} cannot be.", "Give --batch a number from 1.")
    first = {item.name: item.dims[0] for item in model.inputs if item.dims and not isinstance(item.dims[0], int)}
    unbound = {name: own for name, own in first.items() if name not in inputs}
    names = list(dict.fromkeys(own for own in unbound.values() if isinstance(own, str)))
    for own in names:
        if symbols.get(own, batch) != batch:
            raise _misfit(model, f"{own} is asked to be both {_words(symbols[own])} and, by --batch, {batch}.")
    fresh = [own for own in names if own not in symbols]
    if len(fresh) > 1:
        raise _misfit(model, f"--batch cannot tell which is the batch: {' or '.join(fresh)}.")
    symbols |= dict.fromkeys(fresh, batch)
    if not unbound:
        judged = [item for item in model.inputs if item.name in first] or [item for item in model.inputs if item.dims]
        for item in judged:
            value = inputs[item.name][0] if item.name in inputs else (item.dims or (None,))[0]
            if value != batch:
                raise _misfit(model, f"--batch {batch} does not fit: the first dim of {item.name} is fixed.")


def _filled(item: OnnxInput, batch: int | None, symbols: Mapping[str, Dim]) -> tuple[Dim | None, ...] | None:
    if item.dims is None:
        return None
    dims: list[Dim | None] = []
    for place, own in enumerate(item.dims):
        # A symbol that one input binds to a range closes nothing elsewhere: two ranges need not move together.
        value = symbols.get(own) if isinstance(own, str) else own
        dims.append(batch if own is None and place == 0 else value if isinstance(value, int) else None)
    return tuple(dims)


def _closed(item: OnnxInput, batch: int | None, symbols: Mapping[str, Dim]) -> tuple[Dim, ...] | None:
    dims = _filled(item, batch, symbols)
    if dims is None or None in dims:
        return None
    return tuple(dim for dim in dims if dim is not None)


def _left_open(model: OnnxModel, batch: int | None, symbols: Mapping[str, Dim], left: Sequence[OnnxInput]) -> Usage:
    flags, only_firsts = list[str](), batch is None
    for item in left:
        dims = _filled(item, batch, symbols)
        if dims is None or None in dims[1:]:
            only_firsts = False
        likely = [_example(place, dim, len(dims)) for place, dim in enumerate(dims)] if dims else ["1,3,224,224"]
        flags.append(f"--input {item.name}={','.join(likely)}")
    example = " ".join(flags[:4]) + (" and so on" if len(flags) > 4 else "")
    hint = f"{'Say --batch N, or the' if only_firsts else 'Say the'} dims, for example: {example}"
    names = ", ".join(item.name for item in left[:12])
    return _misfit(model, f"Not every dim is known: {names} would stay open.", hint)


def _example(place: int, dim: Dim | None, rank: int) -> str:
    return "1" if dim is None and place == 0 else ("224" if rank == 4 else "128") if dim is None else str(dim)
