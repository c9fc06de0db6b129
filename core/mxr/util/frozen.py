"""Frozen dataclasses that are cheap to define, so that `mxr fetch` starts fast.

The standard library compiles six functions for each frozen dataclass when its module is imported, which took a third of
the time of a fetch from the cache. The classes defined here share these functions, and describe their fields to
`dataclasses.fields`, `replace` and `asdict` when these are first used. Type checkers see plain dataclasses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    import threading

    def dataclass(*, frozen, slots):
        """Define a frozen dataclass. Both options must be true.

        They are written out because type checkers expect the signature of `dataclasses.dataclass`. Instances have a
        `__dict__`, so `slots` has no effect at run time.
        """
        assert frozen and slots

        def make(cls):
            # Without a docstring, the standard library writes one from the signature, which takes a millisecond.
            cls.__doc__ = cls.__doc__ or cls.__name__
            own = {name: cls.__dict__.get(name, dataclasses.MISSING) for name in cls.__annotations__}
            rows = {**getattr(cls, "__value_rows__", {}), **own}
            cls.__value_rows__, cls.__value_names__ = rows, tuple(rows)
            cls.__value_defaults__, cls.__value_factories__ = {}, []
            for name, row in rows.items():
                default = row.default if isinstance(row, dataclasses.Field) else row
                if default is not dataclasses.MISSING:
                    cls.__value_defaults__[name] = default
                elif isinstance(row, dataclasses.Field) and row.default_factory is not dataclasses.MISSING:
                    cls.__value_factories__.append((name, row.default_factory))
            for name, row in own.items():
                if isinstance(row, dataclasses.Field):
                    delattr(cls, name)
                    if row.default is not dataclasses.MISSING:
                        setattr(cls, name, row.default)
            cls.__dataclass_fields__ = _Fields(own)
            cls.__init__, cls.__setattr__, cls.__delattr__ = _init, _refuse, _refuse
            cls.__eq__, cls.__hash__ = _equal, _hash
            if cls.__repr__ is object.__repr__:
                cls.__repr__ = _show
            return cls

        return make

    _LOCK = threading.RLock()

    class _Fields:
        """Stands for the fields of a class until somebody asks for them: then the standard library makes them."""

        def __init__(self, own):
            self._own = own

        def __get__(self, _, cls):
            with _LOCK:
                for owner in cls.__mro__:
                    if owner.__dict__.get("__dataclass_fields__") is self:
                        for name, row in self._own.items():
                            if isinstance(row, dataclasses.Field):
                                setattr(owner, name, row)
                        dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(owner)
                return cls.__dataclass_fields__

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
        names = [row.name for row in dataclasses.fields(self) if row.repr]
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({inside})"
