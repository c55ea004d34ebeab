"""`ElementEmitter`: one vreg of any node of a fusion at any index, walking from node to leaves.

``emit(node, index)`` returns the register that holds, in sublane s and lane l, the element of
`node` at `index` (expressions over SUBLANE, LANE and variables in sregs). Values are remembered by
(node, index) within a block, so what several users share is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.analysis.indexing import Var, variables
from compiler.analysis.indexing_maps import (
    PIECEWISE,
    Condition,
    Index,
    OperandAccess,
    operand_indices,
    operand_reads,
    start_index,
    start_operand,
)
from compiler.backend.index_scalars import emit_clamp
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.constants import emit_constant
from compiler.backend.vector.elementwise import emit_elementwise
from compiler.backend.vector.index_values import IndexValues
from compiler.backend.vector.loads import Loader
from compiler.backend.vector.ops import Ops, value_class
from compiler.backend.vector.small_floats import round_to, settle
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import S32, U8
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.representability import holds
from compiler.kernels.stage_leaves import reachable
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import MReg, SReg

_MOVES = with_any(Trait.INDEX_MAP) | {"bitcast", "copy"}
"""Opcodes that read exactly one element of operand 0."""
_LEAVES = with_any(Trait.GIVEN | Trait.STAGE) | {"get-tuple-element", "iota"}
"""Opcodes that have no operands here, or whose value must be bound."""


_MOST_EXACT = 256
"""Positions that bf16 and f16 count exactly."""

_Key = tuple[HloInstruction, Index]


@dataclass(slots=True)
class _Task:
    """A node under way: `done` of its operands, which `keys` names, are there.

    `accesses` are those of a piecewise node, whose pieces are joined one by one, from the last on.
    """

    node: HloInstruction
    index: Index
    accesses: list[OperandAccess]
    keys: list[_Key]
    done: int = 0
    result: int = -1


class ElementEmitter:
    """See `VectorEmitter` for the arguments."""

    def __init__(
        self,
        builder: LloBuilder,
        bindings: dict[HloInstruction, VmemArray],
        sregs: dict[Var, SReg] | None = None,
        scalars: dict[HloInstruction, SReg] | None = None,
    ) -> None:
        self.builder = builder
        self.bindings = bindings
        self.scalars: dict[HloInstruction, SReg] = {} if scalars is None else scalars
        self.ops = Ops(builder)
        self.index_values = IndexValues(self.ops, {} if sregs is None else sregs)
        self.loader = Loader(self.ops, self.index_values)
        self.unread: frozenset[HloInstruction] = frozenset()
        self._given = frozenset(self.sregs)
        self._block = builder.block
        self._memo: dict[_Key, int] = {}

    @property
    def sregs(self) -> dict[Var, SReg]:
        """Which sreg holds each variable."""
        return self.index_values.sregs

    def preset(self, node: HloInstruction, index: Index, register: int) -> None:
        """Say that `register` holds `node` at `index` for the rest of the block."""
        self._sync_block()
        self._memo[node, index] = register

    def _sync_block(self) -> None:
        """Forget the registers of another block."""
        if self.builder.block is not self._block:
            self._block = self.builder.block
            self._memo.clear()

    def emit(self, node: HloInstruction, index: Index) -> int:
        """The register (vreg, or vmask for pred) with `node` at `index`.

        Operands come before users, by an explicit stack: chains may be of any length.
        """
        self._sync_block()
        wanted = (node, index)
        found = self._memo.get(wanted)
        if found is not None:
            return found
        outer = self.builder.source
        stack = [self._task(node, index)]
        while stack:
            task = stack[-1]
            missing = self._advance(task)
            if missing is not None:
                stack.append(self._task(*missing))
                continue
            self._memo[task.node, task.index] = task.result
            stack.pop()
        self.builder.source = outer
        return self._memo[wanted]

    def _task(self, node: HloInstruction, index: Index) -> _Task:
        if node in self.scalars or node in self.bindings or node.opcode in _LEAVES:
            return _Task(node, index, [], [])  # nothing must be emitted before a leaf
        if node.opcode not in PIECEWISE:
            return _Task(node, index, [], operand_reads(node, index))
        accesses = operand_indices(node, index)
        operands = node.operands
        return _Task(node, index, accesses, [(operands[a.operand], a.index) for a in accesses])

    def _advance(self, task: _Task) -> _Key | None:
        """Go on with a node until an operand is missing, which is returned, or it is done."""
        node, keys, memo = task.node, task.keys, self._memo
        if keys and node.opcode in PIECEWISE:
            return self._advance_pieces(task)
        for number in range(task.done, len(keys)):
            if keys[number] not in memo:
                task.done = number
                return keys[number]
        self.builder.source = node.name
        task.result = self._emit(node, task.index, keys)
        return None

    def _advance_pieces(self, task: _Task) -> _Key | None:
        """First access whose conditions hold: a select around what comes after it."""
        while task.done < len(task.keys):
            number = len(task.keys) - 1 - task.done
            value = self._memo.get(task.keys[number])
            if value is None:
                return task.keys[number]
            self.builder.source = task.node.name
            if not task.done:
                task.result = value
            else:
                kind = value_class(task.node.array.dtype)
                mask = self.mask(task.accesses[number].conditions)
                task.result = self.ops.choose(kind, mask, value, task.result)
            task.done += 1
        return None

    def _emit(self, node: HloInstruction, index: Index, keys: list[_Key]) -> int:
        if node in self.scalars:
            return self._splat(node)
        array = self.bindings.get(node)
        if array is not None:
            return self._load(node, array, index)
        if node.opcode == "constant":
            return emit_constant(self.ops, node)
        if node.opcode == "iota":
            return self._iota(node, index)
        if node in self.unread:
            return self.nothing(node)
        if node.opcode in _LEAVES:
            return self.unbound(node)
        values = [self._memo[key] for key in keys]
        if node.opcode in _MOVES:
            return values[0]
        return emit_elementwise(self.ops, node, values)

    def nothing(self, node: HloInstruction) -> int:
        """Zero, for a leaf that only elements outside of the result would read."""
        return self.ops.flag(False) if value_class(node.array.dtype) == "m" else self.ops.integer(0)

    def unbound(self, node: HloInstruction) -> int:
        """A leaf that no window holds: a bug of the caller."""
        raise AssertionError(f"%{node.name}: {node.opcode} is not bound to a window")

    def _load(self, node: HloInstruction, array: VmemArray, index: Index) -> int:
        value = self.loader.load(array, index)
        is_number = value_class(array.shape.dtype) != "m"
        if value_class(node.array.dtype) == "m" and is_number:  # scratch of a reduce of pred
            return self.ops.integer_to_mask(value)
        if node.array.dtype != array.shape.dtype and node.array.dtype.is_float:  # held as f32
            return settle(self.ops, value, node.array.dtype)
        return value

    def _splat(self, node: HloInstruction) -> int:
        value = self.ops.splat(self.scalars[node])
        is_mask = value_class(node.array.dtype) == "m"
        return self.ops.integer_to_mask(value) if is_mask else value

    def _iota(self, node: HloInstruction, index: Index) -> int:
        dim = node.iota_dimension
        dtype = node.array.dtype
        value = self.index_values.vector(index[dim])
        kind = value_class(dtype)
        if kind == "m":
            return self.ops.integer_to_mask(value)
        if kind == "i":
            return self.ops.wrap(value, dtype)
        real = self.ops.emit("vcvt.f32.s32", value)
        last = S32 if node.array.dims[dim] > _MOST_EXACT else U8
        return real if holds(dtype, last) else round_to(self.ops, real, dtype)

    def mask(self, conditions: tuple[Condition, ...]) -> MReg:
        """Where all of the conditions hold."""
        result = -1
        for condition in conditions:
            one = self.index_values.within(condition.expr, condition.low, condition.high)
            result = one if result < 0 else self.ops.both(result, one)
        return result if result >= 0 else self.ops.flag(True)

    def bind_starts(self, nodes: Sequence[HloInstruction]) -> None:
        """Put the dynamic starts that `nodes` reach into sregs of the present scope.

        To be called before loops are opened: a sreg made inside one does not outlive it.
        """
        for node in reachable(nodes, self.bindings.keys()):
            if not OPCODES[node.opcode].has(Trait.BOX) or node in self.bindings:
                continue
            for dim in range(node.array.rank):
                for variable in variables(start_index(node, dim)):
                    if variable not in self._given:
                        self.sregs[variable] = self._start(variable)

    def _start(self, variable: Var) -> SReg:
        operand = start_operand(variable)
        if operand not in self.scalars:
            assert variable.start_of is not None
            message = (
                f"%{operand.name}: a start index of %{variable.start_of.name} must be a scalar"
                " in SMEM or a register"
            )
            raise UnsupportedError(message, operand.span)
        value = self.scalars[operand]
        return emit_clamp(self.builder, value, variable.low, variable.high)
