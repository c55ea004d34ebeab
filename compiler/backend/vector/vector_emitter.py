"""`VectorEmitter`: the vector backend's face to kernels.

emitter = VectorEmitter(builder, bindings, sregs, scalars)
emitter.emit_reduce_stage([row_max], [scratch])      # leaves are windows bound in `bindings`
emitter.bindings[row_max] = scratch                  # later stages read the result
emitter.emit_stage([root], [output])
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.chain_stage import Chain, emit_chain_stage
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.reduce_plan import ReducedBox
from compiler.backend.vector.reduce_stage import emit_reduce_stage
from compiler.backend.vector.stage import emit_stage
from compiler.hlo.ir import HloInstruction
from compiler.llo.ir import SReg


class VectorEmitter(ElementEmitter):
    """Emits vector code for nodes of a fusion over boxes held in VMEM.

    `bindings` maps leaves (fusion parameters in windows, nodes computed by earlier stages) to where
    they lie; `sregs` maps grid and loop variables of index expressions to the sregs that hold them;
    `scalars` maps rank-0 nodes whose value is in a sreg (dynamic-slice starts, SMEM operands;
    raw bits, pred as 0 or 1). All three may be extended between stages.
    """

    def emit_stage(
        self,
        nodes: Sequence[HloInstruction],
        targets: Sequence[VmemArray],
        *,
        limits: tuple[int, ...] | None = None,
        zero_fill: bool = False,
    ) -> None:
        """Compute `nodes[i]` over the box of `targets[i]`, whole vreg tiles, with its own loops.

        All boxes agree in origin and extent; a target may be of another dtype of the same class
        (bf16 for an f32 node: rounded). Elements outside the node's dims, or at
        index >= `limits[d]`, are garbage, or 0 with `zero_fill`.
        """
        emit_stage(self, nodes, targets, limits, zero_fill)

    def emit_reduce_stage(
        self,
        reduces: Sequence[HloInstruction],
        targets: Sequence[Sequence[VmemArray]],
        *,
        reduced: ReducedBox | None = None,
        accumulate: SReg | None = None,
    ) -> None:
        """Compute reduces with the same operand dims and dimensions.

        `targets[i]` has one array for each result of reduce i; their origin and extent say which
        box of the kept dimensions. Any arrangement and type of the result's class will do;
        what comes without a second pass: a `replicated` array where the columns (last dim) are
        reduced, a normal one where they are not, of a 32-bit type unless the rows are kept.

        `reduced`: (first index, extent) of each reduced dimension, in ascending order, when this
        grid step covers only a part of them. `accumulate`: a sreg that is not 0 when earlier steps
        have left their part in the targets, which is then combined with this one's (0: the init
        values are); the targets must be such as need no second pass.
        """
        emit_reduce_stage(self, reduces, targets, reduced, accumulate)

    def emit_chain_stage(self, chain: Chain) -> None:
        """Compute a row chain over whole rows, its results and what it leaves into their arrays.

        A reduction is left in a `replicated` array. All boxes have the rows of the chain.
        """
        emit_chain_stage(self, chain)


__all__ = ["VectorEmitter"]
