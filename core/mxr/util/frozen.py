"""Frozen dataclasses that cost little to define: `mxr fetch` must start as fast as what it stands on.

The standard library compiles six functions for each frozen dataclass when its module is loaded, which was a third of
the time of a fetch that the cache answers. Here the classes share theirs. A checker sees plain dataclasses, and so do
`dataclasses.fields`, `replace` and `asdict`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses

    def dataclass(*, frozen, slots):
        """Makes a frozen dataclass; both options are written out, as for the standard one, and must be true."""
        assert frozen and slots

        def make(cls):
            made = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
            rows = dataclasses.fields(made)
            made.__value_names__ = tuple(row.name for row in rows)
            made.__value_defaults__ = {row.name: row.default for row in rows if row.default is not dataclasses.MISSING}
            made.__value_factories__ = [
                (row.name, row.default_factory) for row in rows if row.default_factory is not dataclasses.MISSING
            ]
            made.__init__, made.__setattr__, made.__delattr__ = _init, _refuse, _refuse
            made.__eq__, made.__hash__ = _equal, _hash
            if made.__repr__ is object.__repr__:
                made.__repr__ = _show
            return made

        return make

    def _init(self, *values, **named):
        names = self.__value_names__
        if len(values) > len(names):
            raise TypeError(f"{type(self).__name__} takes {len(names)} values, not {len(values)}")
        found = {**self.__value_defaults__, **dict(zip(names, values, strict=False))}
        for name, value in named.items():
            if name not in names or name in names[: len(values)]:
                raise TypeError(f"{type(self).__name__} got an unexpected or repeated field {name!r}")
            found[name] = value
        for name, factory in self.__value_factories__:
            if name not in found:
                found[name] = factory()
        if len(found) < len(names):
            raise TypeError(f"{type(self).__name__} misses {', '.join(name for name in names if name not in found)}")
        self.__dict__.update(found)
        check = getattr(self, "__post_init__", None)
        if check is not None:
            check()

    def _refuse(_, name, *__):
        raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")

    def _row(self):
        return tuple(self.__dict__[name] for name in self.__value_names__)

    def _equal(self, other):
        return _row(self) == _row(other) if other.__class__ is self.__class__ else NotImplemented

    def _hash(self):
        return hash(_row(self))

    def _show(self):
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__value_names__)
        return f"{type(self).__qualname__}({inside})"
