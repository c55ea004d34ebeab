"""Windows that a user asks for by name, ``--window NAME=bm,bk,bn``, and what became of them.

place      before the passes: NAME is a dot, a convolution, or a fusion around one of them, and
           the request becomes its `window_config`, which travels with the dot
claim      when windows are planned: NAME is a kernel's fusion as the report and a dump show it
check      afterwards: a request that no kernel has taken is an error, never ignored
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from compiler.analysis.window_config import (
    OWN,
    REQUEST,
    WINDOW_CONFIG,
    matrix_config,
    read_config,
    write_config,
)
from compiler.diagnostics import CompileError
from compiler.hlo.call_graph import reachable
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape

Window = tuple[int, int, int]
"""Elements of M, K and N in a grid step."""
_MATRIX_OPCODES = ("dot", "convolution")
_MULTIPLES = (8, 128, 128)
_SHOWN = 12
"""Names in an error, which is to stay readable."""


@dataclass
class WindowRequests:
    """The windows asked for by name; `placed` and `taken` are the names found and obeyed so far."""

    asked: Mapping[str, Window] = field(default_factory=dict)
    placed: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    sources: list[str] = field(default_factory=list)

    def place(self, module: HloModule) -> None:
        """Write the requests for dots and convolutions of a module into their configs.

        Raises CompileError for a window of no size, of parts of tiles, or of a fusion that does not
        hold exactly one dot.
        """
        if not self.asked:
            return
        for computation in reachable(module):
            for instr in computation:
                inner = [instr] if instr.opcode in _MATRIX_OPCODES else _inside(instr)
                if inner:
                    self.sources.append(instr.name)
                if instr.name in self.asked and inner:
                    self._place(instr, inner)

    def _place(self, named: HloInstruction, inner: list[HloInstruction]) -> None:
        if len(inner) > 1:
            names = ", ".join(i.name for i in inner)
            raise CompileError(
                f"--window {named.name}: {len(inner)} dots in this fusion; name one of {names}",
                named.span,
            )
        sizes = _convolution_sizes(inner[0]) or _dot_sizes(inner[0])
        _write(inner[0], named.name, self.asked[named.name], sizes)
        self.placed.add(named.name)

    def claim(self, fusion: HloInstruction, dot: HloInstruction | None) -> bool:
        """Write a request for this kernel's name into its config; whether there is one.

        Raises CompileError for a kernel without a dot.
        """
        name = fusion.name
        if name not in self.asked or name in self.placed:
            return False
        if dot is None:
            raise CompileError(
                f"--window {name}: a kernel without a dot has no blocks of M, K and N", fusion.span
            )
        _write(fusion, name, self.asked[name], _dot_sizes(dot))
        return True

    def take(self, instrs: Iterable[HloInstruction | None]) -> None:
        """Note the requests that a kernel's plan has obeyed."""
        for instr in instrs:
            if instr is not None:
                self.taken.add(str(read_config(instr).get(REQUEST, "")))

    def check(self, kernels: Iterable[str]) -> None:
        """Raise CompileError if a request was not obeyed; `kernels` are the names with windows."""
        for name in self.asked:
            if name in self.taken:
                continue
            if name in self.placed:
                raise CompileError(
                    f"--window {name}: no kernel multiplies matrices for it (it is folded, merged "
                    "with an equal one, or computed on the vector unit)"
                )
            raise CompileError(
                f"--window {name}: no such dot, convolution or fusion. In the model: "
                f"{_listed(self.sources)}; kernels: {_listed(kernels)}"
            )


def carried_request(instr: HloInstruction) -> dict[str, object]:
    """The attributes with which a convolution's request goes on to the dot made of it."""
    is_asked = REQUEST in read_config(instr)
    return {"backend_config": instr.backend_config} if is_asked else {}


def _inside(fusion: HloInstruction) -> list[HloInstruction]:
    """The dots and convolutions in a fusion of the input that is not a kernel of ours yet."""
    body = fusion.attrs.get("calls")
    if fusion.opcode != "fusion" or OWN in read_config(fusion):
        return []
    assert isinstance(body, HloComputation)
    return [i for i in body if i.opcode in _MATRIX_OPCODES]


def _write(instr: HloInstruction, name: str, window: Window, sizes: Window) -> None:
    for what, block, size, multiple in zip("MKN", window, sizes, _MULTIPLES, strict=True):
        if block < 1 or (block < size and block % multiple):
            raise CompileError(
                f"--window {name}: blocks of {block} along {what}: want all {size}, or a multiple "
                f"of {multiple} below",
                instr.span,
            )
    blocks = tuple(min(b, s) for b, s in zip(window, sizes, strict=True))
    kept = {k: v for k, v in read_config(instr).items() if k not in (OWN, WINDOW_CONFIG)}
    asked = {REQUEST: name, WINDOW_CONFIG: matrix_config(*blocks)}
    write_config(instr, {**kept, **asked})


def _dot_sizes(dot: HloInstruction) -> Window:
    """M, K and N of any dot."""
    sides = []
    for number, side in enumerate(("lhs", "rhs")):
        used = dot.ints(f"{side}_batch_dims") + dot.ints(f"{side}_contracting_dims")
        dims = dot.operands[number].array.dims
        sides.append(math.prod(n for d, n in enumerate(dims) if d not in used))
    return (
        sides[0],
        math.prod(dot.operands[0].array.dims[d] for d in dot.lhs_contracting_dims),
        sides[1],
    )


def _convolution_sizes(instr: HloInstruction) -> Window | None:
    """M, K and N of the dot that a convolution is, per group of features; None for a dot."""
    if instr.opcode != "convolution":
        return None
    labels, groups = instr.dim_labels, instr.feature_group_count
    kernel = instr.operands[1].shape
    assert isinstance(kernel, ArrayShape)
    out = kernel.dims[labels.kernel_output_feature]
    result = instr.array.element_count // max(1, instr.array.dims[labels.output_feature])
    return result, kernel.element_count // max(1, out), out // groups


def _listed(names: Iterable[str]) -> str:
    found = sorted(set(names))
    more = f", .. ({len(found)} in all)" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more if found else "none"
