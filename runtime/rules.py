"""Rules of tracing called as functions: part of the function being traced, or compiled by themselves."""

from __future__ import annotations

import functools
from typing import Any

from compiler.frontends.numpy.tracer import Rule, open_trace
from runtime.jit import JitFunction

_KEPT = 512
"""So many rules called outside of a traced function keep their programs."""


def apply_rule(home: str, rule: Rule, known: tuple[object, ...], operands: tuple[Any, ...]) -> Any:
    """Apply a rule to the open trace, or run it on the chip as a program of its own.

    `known` are the rule's first arguments, which must be hashable when no trace is open; `operands`
    are arrays and trees of them. `home` is the module that the user knows the rule from.
    """
    trace = open_trace()
    if trace is None:
        return _alone(home, rule, known)(*operands)
    return trace.run(f"{home}.{rule.__name__}", rule, (*known, *operands), {})


@functools.lru_cache(_KEPT)
def _alone(home: str, rule: Rule, known: tuple[object, ...]) -> JitFunction:
    def call(*operands: object) -> object:
        return apply_rule(home, rule, known, operands)

    call.__name__ = rule.__name__
    return JitFunction(call)
