"""`cached_property`: a value that is made at the first use and kept with its object.

That of `functools` has a lock up to Python 3.11, one for all objects of a class: a process that is forked
while another thread makes such a value waits for it for ever, and threads wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

_Value = TypeVar("_Value")


class cached_property(Generic[_Value]):
    """``@cached_property``: threads that come at the same time may each make one, and all get the same."""

    def __init__(self, make: Callable[[Any], _Value]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> cached_property[_Value]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> _Value: ...

    def __get__(
        self, instance: object | None, owner: type | None = None
    ) -> cached_property[_Value] | _Value:
        if instance is None:
            return self
        made: _Value = instance.__dict__.setdefault(self._name, self._make(instance))
        return made
