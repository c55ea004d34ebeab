"""How many lanes and sublanes a register has is written once."""

from __future__ import annotations

import ast

from tests.architecture.test_layers import modules, tree_of

SIZES = ("LANES", "SUBLANES", "UNIT_DIM")


def _names(target: ast.expr) -> list[str]:
    return [node.id.lstrip("_") for node in ast.walk(target) if isinstance(node, ast.Name)]


def test_lanes_and_sublanes_are_written_once() -> None:
    """A module that wants them imports them from `tpu_sim.isa.geometry`."""
    again = [
        f"{name}:{node.lineno}"
        for name, path in modules().items()
        if name != "tpu_sim.isa.geometry"
        for node in tree_of(path).body
        if isinstance(node, ast.Assign)
        and all(isinstance(leaf, ast.Constant) for leaf in _leaves(node.value))
        and any(found in SIZES for target in node.targets for found in _names(target))
    ]
    assert not again, "\n".join(again)


def _leaves(value: ast.expr) -> list[ast.expr]:
    return list(value.elts) if isinstance(value, ast.Tuple) else [value]
