"""Row alignment: rows that merge sequences of odd lengths get sequences of whole tiles.

    x = f32[32,197,768], merged to f32[6304,768]        row 197 of the merged array begins inside a tile
    x, padded to f32[32,208,768], is f32[6656,768]      every sequence begins at a whole tile

A product of merged rows fetches each tile of its left side from two, and its readers part the result the
same way. With sequences padded to whole bf16 tiles merging and parting are free, and a product has a few
rows more. A *region* is what is computed of merged rows without mixing them: products, elementwise
operations, sums along rows. It is made anew of longer sequences; what comes in is padded with zeros, what
goes out loses the added rows again: they may hold anything. A product that sums over rows takes zeros
there, a sum over rows leaves them out.
"""

from __future__ import annotations

from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.passes.merged_rows import (
    Rows,
    is_row_product,
    lengthen,
    merging,
    padded,
    parting,
    summed_rows,
)
from compiler.rewrite import make
from compiler.rewrite.graph import emit, remove_dead, replace

Instr = HloInstruction
_ELEMENTWISE = with_trait(Trait.ELEMENTWISE)


def align_rows(module: HloModule, context: PassContext) -> bool:
    """Make the regions anew whose sequences are odd."""
    for computation in control_computations(module):
        seen: set[Instr] = set()
        for dot in [i for i in computation if is_row_product(i)]:
            if dot in seen or dot.computation is not computation:
                continue
            region = _Region(dot)
            seen.update(region.members)
            if region.rows is not None:
                _Aligned(region, region.rows).rewrite()
                context.counts["regions"] += 1
        for dot in [i for i in computation if i.opcode == "dot"]:
            rows = summed_rows(dot)
            if rows is not None:
                context.counts["sums"] += lengthen(dot, rows, lambda _: None)
        computation.sort()
    return bool(context.counts["regions"] or context.counts["sums"])


class _Region:
    """What is computed of the merged rows of a product.

    `rows` is None where they are not of sequences, of different ones, or it does not pay.
    """

    def __init__(self, dot: Instr) -> None:
        self.size = dot.array.dims[0]
        self.members: dict[Instr, None] = {dot: None}
        found: set[Rows] = set()
        is_even = True
        pending = [dot]
        while pending:
            member = pending.pop()
            for near in (*self.row_operands(member), *member.users):
                if near in self.members:
                    continue
                if self._belongs(near):
                    self.members[near] = None
                    pending.append(near)
                    continue
                is_user = member in near.operands
                rows = parting(near) if is_user else merging(near)
                if rows is not None and rows.merged == self.size:
                    found.add(rows)
                elif (
                    not is_user
                    and near.array.rank > 1
                    and not OPCODES[near.opcode].has(Trait.SYMBOLIC)
                ):
                    is_even = False  # it would be moved to be aligned
        (rows,) = found if len(found) == 1 else (None,)
        is_kept = is_even and rows is not None and rows.is_worth_it
        self.rows = rows if is_kept else None

    def row_places(self, member: Instr) -> list[int]:
        """The places of the operands whose first dimension is the rows."""
        if member.opcode in _ELEMENTWISE:
            return [place for place, o in enumerate(member.operands) if o.array.dims]
        if member.opcode == "broadcast":
            return [0] if 0 in member.dimensions else []
        return [0]

    def row_operands(self, member: Instr) -> list[Instr]:
        """These operands."""
        return [member.operands[place] for place in self.row_places(member)]

    def _belongs(self, instr: Instr) -> bool:
        """Whether an operation keeps rows apart, so that it may have more of them."""
        if not isinstance(instr.shape, ArrayShape) or instr.array.dims[:1] != (self.size,):
            return False
        if instr.opcode in _ELEMENTWISE:
            return True
        first = instr.operands[0] if instr.operands else None
        if first is None or not isinstance(first.shape, ArrayShape):
            return False
        if instr.opcode == "broadcast":
            return 0 not in instr.dimensions or instr.dimensions[0] == 0
        if first.array.dims[:1] != (self.size,):
            return False
        if instr.opcode == "dot":
            return is_row_product(instr) and instr.ints("lhs_contracting_dims") == (1,)
        if instr.opcode == "reduce":
            return len(instr.operands) == 2 and 0 not in instr.dimensions
        return instr.opcode == "reshape" or (
            instr.opcode == "slice" and instr.attrs["slice"][0] == (0, self.size, 1)  # type: ignore[index]
        )


class _Aligned:
    """A region made anew."""

    def __init__(self, region: _Region, rows: Rows) -> None:
        self._region = region
        self._rows = rows
        self._made: dict[Instr, Instr] = {}
        self._padded: dict[Instr, Instr] = {}

    def rewrite(self) -> None:
        """Compute all members with longer sequences, and what is read of them from these."""
        members = self._region.members
        outside = {u: None for m in members for u in m.users if u not in members}
        home = next(iter(members)).computation
        assert home is not None
        for member in members:
            self._aligned(member)
        for user in outside:
            if user.computation is home:
                self._replace_user(user)
        for member in members:
            if member.computation is not None and member.users:
                replace(member, self._restored(member))
        if home.root in members:
            home.root = self._restored(home.root_instruction)
        for member in members:
            if member.computation is not None:
                remove_dead(member)

    def _aligned(self, member: Instr) -> None:
        """Make a member with longer sequences, after the members that it takes."""
        pending = [member]
        while pending:
            node = pending[-1]
            needed = [
                o
                for o in self._region.row_operands(node)
                if o in self._region.members and o not in self._made
            ]
            pending.extend(needed)
            if not needed:
                pending.pop()
                if node not in self._made:
                    self._made[node] = self._new(node)

    def _new(self, member: Instr) -> Instr:
        operands = list(member.operands)
        for place in self._region.row_places(member):
            operand = operands[place]
            operands[place] = self._made.get(operand) or self._zeroed(operand)
        dims = (self._rows.total, *member.array.dims[1:])
        attrs = dict(member.attrs)
        if member.opcode == "slice":
            bounds = member.attrs["slice"]
            assert isinstance(bounds, tuple)
            attrs["slice"] = ((0, self._rows.total, 1), *bounds[1:])
        return emit(member, member.opcode, member.array.with_dims(dims), operands, attrs)

    def _zeroed(self, value: Instr) -> Instr:
        """An array of merged rows with longer sequences, zeros in what is added."""
        if value not in self._padded:
            self._padded[value] = self._pad(value)
        return self._padded[value]

    def _pad(self, value: Instr) -> Instr:
        rows = self._rows
        rest = value.array.dims[1:]
        if value in self._made:
            parted = self._parted(value)
        elif merging(value) == rows:
            parted = make.reshape(value.operands[0], (rows.count, rows.length, *rest))
        else:
            parted = make.reshape(value, (rows.count, rows.length, *rest))
        longer = padded(parted, 1, rows.aligned)
        return make.reshape(longer, (rows.total, *rest))

    def _parted(self, member: Instr) -> Instr:
        """A member by sequences, without what was added: ``[count, length, ..]``."""
        rows, rest = self._rows, member.array.dims[1:]
        longer = make.reshape(self._made[member], (rows.count, rows.aligned, *rest))
        whole = tuple((0, n, 1) for n in rest)
        return make.slice_(longer, ((0, rows.count, 1), (0, rows.length, 1), *whole))

    def _restored(self, member: Instr) -> Instr:
        return make.reshape(self._parted(member), member.array.dims)

    def _replace_user(self, user: Instr) -> None:
        """Make a user read the longer sequences where it can."""
        source = user.operands[0] if user.operands else None
        if source in self._made and parting(user) == self._rows:
            replace(user, make.reshape(self._parted(source), user.array.dims))
        elif user.opcode == "transpose" and user.dimensions == (1, 0):
            for dot in list(user.users):
                lengthen(dot, self._rows, self._zeroed_member)
        elif user.opcode == "dot":
            lengthen(user, self._rows, self._zeroed_member)
        elif user.opcode == "reduce" and len(user.operands) == 2 and 0 in user.dimensions:
            parted = self._parted(user.operands[0])
            dims = (0, *(d + 1 for d in user.dimensions))
            attrs = dict(user.attrs) | {"dimensions": dims}
            replace(user, emit(user, "reduce", user.array, (parted, user.operands[1]), attrs))

    def _zeroed_member(self, value: Instr) -> Instr | None:
        return self._zeroed(value) if value in self._made or value in self._padded else None
