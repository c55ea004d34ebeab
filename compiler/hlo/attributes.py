"""Values of instruction attributes that are more than a number, a name or a tuple of numbers.

All are frozen: attribute values are compared, hashed and shared between instructions.
Their text forms live in `compiler.hlo.attribute_text`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar, cast, overload

import numpy as np

from compiler.diagnostics import CompileError, SourceSpan
from compiler.hlo.shape import Shape

_T = TypeVar("_T")


class _Holder(Protocol):
    """An instruction, as far as its attributes are concerned."""

    name: str
    attrs: dict[str, object]

    @property
    def span(self) -> SourceSpan | None:
        """Where it stands in the source."""


class Attribute(Generic[_T]):
    """A typed view of one attribute of an instruction: ``index = Attribute[int](int)``.

    `default` stands for an absent one; without a default, absence is an error that names the
    instruction, as a value of another type is. The name is that of the class attribute.
    """

    def __init__(
        self, kind: type | tuple[type, ...], default: _T | None = None, name: str = ""
    ) -> None:
        self.kind = kind
        self.default = default
        self.name = name

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instr: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instr: _Holder, owner: type) -> _T: ...
    def __get__(self, instr: _Holder | None, owner: type) -> Self | _T:
        return self if instr is None else self.of(instr)

    def of(self, instr: _Holder) -> _T:
        """The value that an instruction has."""
        value = instr.attrs.get(self.name, self.default)
        if isinstance(value, self.kind):
            return cast(_T, value)
        found = "nothing" if value is None else repr(value)
        raise CompileError(
            f"%{instr.name}: {self.name}: found {found}, want {self._wanted()}", instr.span
        )

    def _wanted(self) -> str:
        kinds = self.kind if isinstance(self.kind, tuple) else (self.kind,)
        return " or ".join(kind.__name__ for kind in kinds)


@dataclass(frozen=True)
class RawText:
    """An attribute value kept verbatim, e.g. ``{devices=[2,4]<=[8]}``; printed back as it is."""

    text: str


@dataclass(frozen=True)
class WindowDim:
    """One dimension of a `Window`; dilations are factors (1 = none), padding may be negative."""

    size: int
    stride: int = 1
    pad_low: int = 0
    pad_high: int = 0
    base_dilation: int = 1  # XLA's text: lhs_dilate
    window_dilation: int = 1  # XLA's text: rhs_dilate
    reversal: bool = False  # XLA's text: rhs_reversal

    @property
    def dilated_size(self) -> int:
        """Extent of the window in base elements, dilation holes included (0 for size 0)."""
        return 0 if self.size == 0 else (self.size - 1) * self.window_dilation + 1

    def output_size(self, base_size: int) -> int:
        """How many positions the window takes along a dimension of `base_size` elements."""
        dilated_base = 0 if base_size == 0 else (base_size - 1) * self.base_dilation + 1
        padded = self.pad_low + dilated_base + self.pad_high
        if padded < self.dilated_size:
            return 0
        return (padded - self.dilated_size) // self.stride + 1


@dataclass(frozen=True)
class Window:
    """``window={size=3x3 stride=2x2 pad=0_1x0_1}``: one `WindowDim` per windowed dimension."""

    dims: tuple[WindowDim, ...] = ()


@dataclass(frozen=True)
class ConvDims:
    """``dim_labels=b01f_01io->b01f``: which dimension of each array plays which role.

    `*_spatial[i]` is the dimension number of spatial dimension ``i``.
    """

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]

    @staticmethod
    def of_labels(lhs: Sequence[str], rhs: Sequence[str], out: Sequence[str]) -> ConvDims:
        """Of a label for each dimension: b, f, i, o, or the number of a spatial one."""
        spatial = [str(d) for d in range(sum(map(str.isdecimal, lhs)))]
        return ConvDims(
            lhs.index("b"), lhs.index("f"), tuple(lhs.index(d) for d in spatial),
            rhs.index("i"), rhs.index("o"), tuple(rhs.index(d) for d in spatial),
            out.index("b"), out.index("f"), tuple(out.index(d) for d in spatial),
        )  # fmt: skip


@dataclass(frozen=True)
class IotaReplicaGroups:
    """``replica_groups=[2,4]<=[4,2]T(1,0)``: groups as a reshaped, transposed iota."""

    dims: tuple[int, int]
    reshape_dims: tuple[int, ...]
    transpose_perm: tuple[int, ...] = ()

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The explicit groups, one tuple of device or replica ids per group."""
        ids = np.arange(math.prod(self.reshape_dims)).reshape(self.reshape_dims)
        if self.transpose_perm:
            ids = ids.transpose(self.transpose_perm)
        return tuple(tuple(int(i) for i in row) for row in ids.reshape(self.dims))


@dataclass(frozen=True)
class OpMetadata:
    """``metadata={op_name="jit(f)/add" source_file="a.py" source_line=3}``, kept verbatim."""

    text: str

    def field(self, name: str) -> str:
        """Return one field, unquoted, or the empty string when it is absent."""
        found = re.search(rf'(?:^|[{{\s]){name}=(?:"((?:[^"\\]|\\.)*)"|([^\s}}"]+))', self.text)
        return "" if found is None else found[1] or found[2] or ""

    @property
    def op_name(self) -> str:
        """The framework's name of the operation, e.g. ``jit(f)/dot_general``."""
        return self.field("op_name")


@dataclass(frozen=True)
class FrontendAttributes:
    """``frontend_attributes={k="v",m={...}}``: keys with their verbatim right-hand sides."""

    items: tuple[tuple[str, str], ...]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.items)

    def get(self, key: str) -> str | None:
        """The value of `key` without its quotes or braces, or None."""
        for name, text in self.items:
            if name == key:
                return text[1:-1] if text[:1] in ('"', "{") else text
        return None


@dataclass(frozen=True)
class ComputationLayout:
    """``entry_computation_layout={(shapes)->shape}``: what the caller hands in and gets back."""

    parameters: tuple[Shape, ...]
    result: Shape


@dataclass(frozen=True)
class InputOutputAlias:
    """One entry of ``input_output_alias``: this part of the result reuses that parameter."""

    output_index: tuple[int, ...]
    parameter_number: int
    parameter_index: tuple[int, ...]
    kind: str = "may-alias"


@dataclass(frozen=True)
class BufferDonor:
    """One entry of ``buffer_donor``: a parameter (part) whose buffer the program may reuse."""

    parameter_number: int
    parameter_index: tuple[int, ...]


@dataclass(frozen=True)
class OutputOperandAlias:
    """One entry of ``output_to_operand_aliasing={{0}: (1, {})}`` of a custom call or fusion."""

    output_index: tuple[int, ...]
    operand_number: int
    operand_index: tuple[int, ...]
