"""Nested tuples, lists and dicts as a flat list of leaves and a hashable description of the rest.

    >>> leaves, tree = flatten({"w": [1, 2], "b": 3})
    >>> leaves
    [3, 1, 2]
    >>> unflatten(tree, ["x", "y", "z"])
    {'b': 'x', 'w': ['y', 'z']}

Dicts are taken in the order of their sorted keys, so that equal dicts have equal trees. None is a
tree without leaves. A named tuple is a tuple that comes back as its own class, and so does a
dataclass: its fields are the children, except those declared ``field(metadata={"static": True})``,
whose values are part of the structure and must be hashable.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass

from compiler.diagnostics import CompileError


@dataclass(frozen=True)
class TreeDef:
    """The structure of a tree: `kind` is the container's class, None standing for a leaf."""

    kind: type | None
    keys: tuple[Hashable, ...] = ()
    children: tuple[TreeDef, ...] = ()
    statics: tuple[tuple[str, Hashable], ...] = ()

    @property
    def leaf_count(self) -> int:
        """How many leaves the tree has."""
        return 1 if self.kind is None else sum(child.leaf_count for child in self.children)

    def paths(self, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        """For each leaf, the keys and positions that lead to it."""
        if self.kind is None:
            yield prefix
        for number, child in enumerate(self.children):
            key = self.keys[number] if self.keys else number
            yield from child.paths((*prefix, str(key)))


LEAF = TreeDef(None)


def flatten(tree: object) -> tuple[list[object], TreeDef]:
    """Return the leaves, depth first, and the structure around them."""
    leaves: list[object] = []
    return leaves, _describe(tree, leaves)


def _describe(tree: object, leaves: list[object]) -> TreeDef:
    if tree is None:
        return TreeDef(type(None))
    if isinstance(tree, dict):
        keys = _sorted_keys(tree)
        return TreeDef(dict, keys, tuple(_describe(tree[key], leaves) for key in keys))
    if isinstance(tree, tuple | list):
        return TreeDef(type(tree), (), tuple(_describe(child, leaves) for child in tree))
    if is_dataclass(tree) and not isinstance(tree, type):
        return _describe_fields(tree, leaves)
    leaves.append(tree)
    return LEAF


def _describe_fields(tree: object, leaves: list[object]) -> TreeDef:
    """The structure of a dataclass. One whose fields are not those of its `__init__` cannot be made
    again from them."""
    assert is_dataclass(tree)
    static = {f.name for f in fields(tree) if f.metadata.get("static")}
    hidden = [f.name for f in fields(tree) if not f.init]
    if hidden:
        kind = type(tree).__name__
        raise CompileError(f"dataclass {kind}: field {hidden[0]!r} has init=False: want none such")
    names = tuple(f.name for f in fields(tree) if f.name not in static)
    children = tuple(_describe(getattr(tree, name), leaves) for name in names)
    statics = tuple((name, getattr(tree, name)) for name in sorted(static))
    return TreeDef(type(tree), names, children, statics)


def _sorted_keys(tree: dict[Hashable, object]) -> tuple[Hashable, ...]:
    try:
        return tuple(sorted(tree))  # type: ignore[type-var]  # unorderable keys raise below
    except TypeError as error:
        raise CompileError(f"dict keys of a tree must be of one orderable type: {error}") from error


def unflatten(tree: TreeDef, leaves: Sequence[object]) -> object:
    """Put leaves back into a structure; there must be exactly as many as it has."""
    if len(leaves) != tree.leaf_count:
        raise CompileError(f"tree: found {len(leaves)} leaves, want {tree.leaf_count}")
    return _rebuild(tree, iter(leaves))


def _rebuild(tree: TreeDef, leaves: Iterator[object]) -> object:
    if tree.kind is None:
        return next(leaves)
    if tree.kind is type(None):
        return None
    children = [_rebuild(child, leaves) for child in tree.children]
    if tree.kind is dict:
        return dict(zip(tree.keys, children, strict=True))
    if is_dataclass(tree.kind):
        given = zip(map(str, tree.keys), children, strict=True)
        return tree.kind(**dict(given), **dict(tree.statics))
    if hasattr(tree.kind, "_fields"):
        return tree.kind(*children)
    return tree.kind(children)
