"""Frozen dataclasses that are cheap to define, so that `mxr fetch` starts fast.

The standard library compiles six functions for each frozen dataclass when its module is imported, which took a third of
the time of a fetch from the cache. The classes defined here share these functions. Type checkers and
`dataclasses.fields`, `replace` and `asdict` see plain dataclasses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses

    def dataclass(*, frozen, slots):
        """Define a frozen dataclass. Both options must be true.

        They are written out because type checkers expect the signature of `dataclasses.dataclass`. Instances have a
        `__dict__`, so `slots` has no effect at run time.
        """
        assert frozen and slots

        def make(cls):
            # Without a docstring, the standard library writes one from the signature, which takes a millisecond.
            cls.__doc__ = cls.__doc__ or cls.__name__
            made = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
            rows = dataclasses.fields(made)
            made.__value_names__ = tuple(row.name for row in rows)
            made.__shown_names__ = tuple(row.name for row in rows if row.repr)
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
            missing = ", ".join(name for name in names if name not in found)
            raise TypeError(f"{type(self).__name__} is missing the fields {missing}")
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
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__shown_names__)
        return f"{type(self).__qualname__}({inside})"
