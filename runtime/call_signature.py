"""What a call of a traced function is: its arguments by name, and the key that a program is kept under."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.errors import BadTypeError
from compiler.frontends.numpy.promotion import OperandType
from compiler.frontends.numpy.pytree import TreeDef, flatten
from compiler.frontends.numpy.tracing import abstract_type

StaticKey = tuple[str, type, object]
LeafKey = tuple[tuple[int, ...], object, bool]
Placement = Callable[[Sequence[object]], tuple[Hashable, ...]]


@dataclass(frozen=True)
class SignatureKey:
    """What programs differ by: static arguments, the tree of the others, the kind of each leaf.

    A leaf's kind is its dimensions, its element type on the device, and whether it is a Python
    scalar (`OperandType.is_weak`); `placement` says of each how it lies on several devices.
    """

    statics: tuple[StaticKey, ...]
    names: tuple[str, ...]
    tree: TreeDef
    kinds: tuple[LeafKey, ...]
    placement: tuple[Hashable, ...] = ()

    def difference(self, other: SignatureKey) -> str:
        """What made `other` need a program of its own, in a few words."""
        mine, theirs = ({row[0]: row for row in key.statics} for key in (self, other))
        for name in sorted({*mine, *theirs}):
            old, new = mine.get(name), theirs.get(name)
            if old != new:
                return f"static argument {name!r} was {_shown(old)}, now {_shown(new)}"
        if (self.names, self.tree) != (other.names, other.tree):
            return "the arguments are nested differently"
        for path, mine_, theirs_ in zip(self._paths(), self.kinds, other.kinds, strict=True):
            if mine_ != theirs_:
                return f"{path} was {_kind(mine_)}, now {_kind(theirs_)}"
        places = zip(self._paths(), self.placement, other.placement, strict=True)
        moved = [f"{path} lay as {old}, now as {new}" for path, old, new in places if old != new]
        return moved[0] if moved else "nothing differs"

    def _paths(self) -> list[str]:
        return _paths(self.names, self.tree)


def _paths(names: Sequence[str], tree: TreeDef) -> list[str]:
    """What the leaves of arguments are called: ``params[w][0]``."""
    paths = []
    for name, child in zip(names, tree.children, strict=True):
        paths += [name + "".join(f"[{key}]" for key in path) for path in child.paths()]
    return paths


def _types(names: Sequence[str], tree: TreeDef, leaves: Sequence[object]) -> list[OperandType]:
    """The types of arguments on the device; the error for one that is no array names it."""
    types: list[OperandType] = []
    try:
        types.extend(map(abstract_type, leaves))
    except BadTypeError as error:
        raise BadTypeError(f"{_paths(names, tree)[len(types)]}: {error.message}") from None
    return types


def _shown(static: StaticKey | None) -> str:
    return "not given" if static is None else repr(static[2])


def _kind(key: LeafKey) -> str:
    dims, dtype, is_weak = key
    return f"a Python scalar ({dtype})" if is_weak else f"{dtype}{list(dims)}"


@dataclass(frozen=True)
class BoundCall:
    """One call: the dynamic arguments as a tuple in the order of the function's parameters, their
    leaves, and the types that these have on the device."""

    key: SignatureKey
    arguments: tuple[object, ...]
    statics: dict[str, object]
    leaves: list[object]
    types: list[OperandType]


class CallSignature:
    """Binds the arguments of calls to the parameters of a function."""

    def __init__(
        self,
        function: Callable[..., object],
        static: Sequence[str] = (),
        static_positions: Sequence[int] = (),
    ) -> None:
        """`static_positions` count the function's parameters. Raises ValueError for a name or a
        position that the function does not have."""
        self._signature = inspect.signature(function)
        self._function = function
        self._positional = _positional_names(self._signature)
        self._order = {name: i for i, name in enumerate(self._signature.parameters)}
        self.static = self.named("static", static, static_positions)
        others = [p for name, p in self._signature.parameters.items() if name not in self.static]
        self._dynamic = self._signature.replace(parameters=others)

    def bind(
        self,
        args: Sequence[object],
        kwargs: dict[str, object],
        placement: Placement,
        statics: dict[str, object] | None = None,
    ) -> BoundCall:
        """The arguments of a call, whose leaves lie as `placement` of them says.

        With `statics` those are the static arguments, and `args` and `kwargs` all others.
        Raises TypeError as the function itself would.
        """
        if statics is not None:
            bound = {**self._by_name(self._dynamic, args, kwargs), **statics}
        elif not kwargs and self._positional and len(args) == len(self._positional):
            bound = dict(zip(self._positional, args, strict=True))
        else:  # defaults stay the function's own affair
            bound = self._by_name(self._signature, args, kwargs)
        statics = {k: v for k, v in bound.items() if k in self.static}
        names = tuple(k for k in bound if k not in self.static)
        arguments = tuple(bound[name] for name in names)
        leaves, tree = flatten(arguments)
        types = _types(names, tree, leaves)
        kinds = tuple(
            (tuple(getattr(leaf, "shape", ())), type.dtype, type.is_weak)
            for leaf, type in zip(leaves, types, strict=True)
        )
        keys = tuple(_static_key(name, statics[name]) for name in sorted(statics))
        key = SignatureKey(keys, names, tree, kinds, placement(leaves))
        return BoundCall(key, arguments, statics, leaves, types)

    def _by_name(
        self, signature: inspect.Signature, args: Sequence[object], kwargs: dict[str, object]
    ) -> dict[str, object]:
        try:
            return dict(signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{self}: {error}") from None

    def __str__(self) -> str:
        """The function with its parameters, for errors."""
        return f"{getattr(self._function, '__name__', 'function')}{self._signature}"

    def apply(self, function: Callable[..., object], arguments: dict[str, object]) -> object:
        """Call the function with arguments by parameter name, as `bind` takes them apart."""
        bound = self._signature.bind_partial()
        ordered = sorted(arguments, key=self._order.__getitem__)
        bound.arguments.update({name: arguments[name] for name in ordered})
        return function(*bound.args, **bound.kwargs)

    def named(self, what: str, names: Iterable[str], positions: Iterable[int]) -> frozenset[str]:
        """The parameters of these names and positions; ValueError for one that there is not."""
        order = list(self._order)
        for name in sorted(set(names) - set(order)):
            message = f"{what} argument {name!r} is no parameter of {self}"
            raise ValueError(message)
        for position in positions:
            if not -len(order) <= position < len(order):
                message = f"{what} argument {position}: {self} has {len(order)} parameters"
                raise ValueError(message)
        return frozenset((*names, *(order[position] for position in positions)))


_HASHABLE = "pass a tuple for a list, or an array as an argument that is not static"


def _static_key(name: str, value: object) -> StaticKey:
    """1, 1.0 and True are equal, but programs made with them are not."""
    try:
        hash(value)
    except TypeError as error:
        raise CompileError(
            f"static argument {name!r} must be hashable: {error}; {_HASHABLE}"
        ) from error
    return name, type(value), value


def _positional_names(signature: inspect.Signature) -> tuple[str, ...] | None:
    """The parameters in order if a call that gives them all, without names, binds one to each; else None."""
    parameters = signature.parameters.values()
    if any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in parameters):
        return None
    return tuple(p.name for p in parameters)
