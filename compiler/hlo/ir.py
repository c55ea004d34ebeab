"""HLO as objects: a module of computations of instructions.

    HloModule            entry computation, other computations, module attributes
      HloComputation     parameters, a root, instructions in a topological order
        HloInstruction   opcode, name, shape, operands, attributes

Instructions and computations have identity; shapes and attribute values are plain values.
An instruction knows its users: operand edges are changed only through the methods here.

Attributes (`HloInstruction.attrs`) map XLA's attribute name to a value. Those that passes read are
declared on `HloInstruction` with their types and defaults: ``instr.dimensions``, ``loop.body``.

    dimensions={0,2}                 tuple of int
    slice={[0:8:1], [2:4]}           tuple of (start, limit, stride)
    padding=0_1_2x1_1_0 (pad)        tuple of (low, high, interior)
    window={size=2x2 stride=1x1}     compiler.hlo.attributes.Window
    dim_labels=b01f_01io->b01f       compiler.hlo.attributes.ConvDims
    to_apply=%c, body=, condition=   HloComputation
    calls=, branch_computations={}   HloComputation / tuple of HloComputation
    direction=LT, index=0            str / int
    lhs_contracting_dims={1}         tuple of int
    is_stable=true                   bool
    replica_groups={{0,1},{2,3}}     tuple of tuples, or attributes.IotaReplicaGroups
    metadata={op_name="..."}         compiler.hlo.attributes.OpMetadata
    frontend_attributes={k="v"}      compiler.hlo.attributes.FrontendAttributes
    control-predecessors={%a}        tuple of HloInstruction (see below)
    anything not known               compiler.hlo.attributes.RawText, printed back verbatim

`index` of get-tuple-element, `parameter_number` of parameter, `literal` of constant are attrs too:
`literal` is a NumPy array of the shape's dtype and dimensions (nested tuples of them for a tuple).
`backend_config` is a str: the JSON text (``{...}``, braces included) or the text that is quoted.
`sharding` is a compiler.hlo.sharding.HloSharding.
An attribute that XLA leaves out when it has its default is absent here too.
Control edges order what has effects: `set_control_predecessors` changes them, and replacing or
removing an instruction hands them on, so that passes need not think of them.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator

import numpy as np

from compiler.diagnostics import CompileError, SourceSpan, SourceText
from compiler.hlo.attributes import Attribute, ConvDims, OutputOperandAlias, Window
from compiler.hlo.shape import ArrayShape, Shape

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
Ints = tuple[int, ...]
Triples = tuple[tuple[int, int, int], ...]

CONTROL = "control-predecessors"


class HloComputation:
    """A function body. `instructions` is topologically ordered once parsed or sorted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.instructions: dict[HloInstruction, None] = {}  # an ordered set
        self.parameters: list[HloInstruction] = []
        self.root: HloInstruction | None = None
        self.module: HloModule | None = None
        self.attrs: dict[str, object] = {}  # e.g. execution_thread
        self.span: SourceSpan | None = None
        self.control_successors: dict[HloInstruction, dict[HloInstruction, None]] = {}

    @property
    def root_instruction(self) -> HloInstruction:
        """The root; a computation without one is a bug of the caller."""
        assert self.root is not None, f"computation %{self.name} has no root"
        return self.root

    @property
    def owner(self) -> HloModule:
        """Its module; a computation of none is a bug of the caller."""
        assert self.module is not None, f"computation %{self.name} is in no module"
        return self.module

    @property
    def results(self) -> list[HloInstruction]:
        """What it returns: the parts of the tuple that its root makes, or the root itself."""
        root = self.root_instruction
        return list(root.operands) if root.opcode == "tuple" else [root]

    def add(self, instr: HloInstruction) -> HloInstruction:
        """Append an instruction, giving it a name that is free in the module.

        Of its control predecessors those of another computation are left out.
        """
        if self.module is not None:
            instr.name = self.module.unique_name(instr.name)
        instr.computation = self
        self.instructions[instr] = None
        if instr.opcode == "parameter":
            bisect.insort(self.parameters, instr, key=lambda parameter: parameter.parameter_number)
        if isinstance(instr.attrs.get(CONTROL), tuple):  # else the parser will resolve its names
            instr.set_control_predecessors(instr.control_predecessors())
        return instr

    def remove(self, instr: HloInstruction) -> None:
        """Remove an instruction that has no users and is not the root.

        What had to run after it runs after what had to run before it.
        """
        assert not instr.users, f"%{instr.name} still has users"
        assert instr is not self.root, f"%{instr.name} is the root"
        if self.control_successors:
            for after in list(self.control_successors.get(instr, ())):
                rest = [p for p in after.control_predecessors() if p is not instr]
                after.set_control_predecessors([*rest, *instr.control_predecessors()])
            instr.set_control_predecessors(())
        instr.set_operands(())
        del self.instructions[instr]
        if instr.opcode == "parameter":
            self.parameters.remove(instr)
        instr.computation = None

    def add_control_edge(self, before: HloInstruction, after: HloInstruction) -> bool:
        """Make one instruction run after another, unless that one must wait for it itself."""
        if before.computation is not self or after.computation is not self:
            return False
        if before is after:
            return False
        is_free = not after.users and not self.control_successors.get(after)
        if not is_free and depends_on(before, after):
            return False
        after.set_control_predecessors([*after.control_predecessors(), before])
        return True

    def take_control_edges(self) -> list[tuple[HloInstruction, HloInstruction]]:
        """Remove all control edges and return them: (before, after)."""
        found = [(b, a) for b, afters in self.control_successors.items() for a in afters]
        for _, after in found:
            after.attrs.pop(CONTROL, None)
        self.control_successors.clear()
        return found

    def hand_on_control_edges(self, old: HloInstruction, new: HloInstruction) -> None:
        """Let `new` run where `old` had to: after its predecessors, before its successors."""
        successors = list(self.control_successors.get(old, ()))
        befores = old.control_predecessors()
        for after in successors:
            after.set_control_predecessors(p for p in after.control_predecessors() if p is not old)
        if new in old.operands or new.opcode in ("parameter", "constant"):
            for after in successors:  # nothing runs in the place of `old`
                after.set_control_predecessors([*after.control_predecessors(), *befores])
            return
        for before in befores:
            self.add_control_edge(before, new)
        for after in successors:
            if not self.add_control_edge(new, after):
                after.set_control_predecessors([*after.control_predecessors(), *befores])

    def sort(self) -> None:
        """Put `instructions` into a topological order, stable with respect to the present one.

        Operands and control predecessors come first. Raises CompileError naming the
        instructions of a cycle, and the instruction that uses one of another computation.
        """
        done: dict[HloInstruction, None] = {}
        for start in self.instructions:
            if start in done:
                continue
            is_ready = "control-predecessors" not in start.attrs
            if is_ready and done.keys() >= set(start.operands):
                done[start] = None
            else:
                self._visit(start, done)
        self.instructions = done

    def _visit(self, start: HloInstruction, done: dict[HloInstruction, None]) -> None:
        """Append what `start` needs, then `start`: depth first with an explicit stack."""
        path: dict[HloInstruction, Iterator[HloInstruction]] = {start: _needs(start)}
        while path:
            instr = next(reversed(path))
            missing = next((n for n in path[instr] if n not in done), None)
            if missing is None:
                del path[instr]
                done[instr] = None
            elif missing in path:
                raise _cycle_error(list(path), missing)
            elif missing not in self.instructions:
                message = f"%{instr.name}: %{missing.name} is not in computation %{self.name}"
                raise CompileError(message, instr.span)
            else:
                path[missing] = _needs(missing)

    def __iter__(self) -> Iterator[HloInstruction]:
        return iter(self.instructions)

    def __repr__(self) -> str:
        return f"<HloComputation %{self.name}, {len(self.instructions)} instructions>"


class HloInstruction:
    """One operation. Create through `HloComputation.add`, which keeps edges and names right."""

    __slots__ = ("attrs", "computation", "location", "name", "opcode", "operands", "shape", "users")

    # Typed attributes: `instr.dimensions` instead of `instr.attrs["dimensions"]`.
    dimensions = Attribute[Ints](tuple, ())
    lhs_contracting_dims = Attribute[Ints](tuple, ())
    rhs_contracting_dims = Attribute[Ints](tuple, ())
    lhs_batch_dims = Attribute[Ints](tuple, ())
    rhs_batch_dims = Attribute[Ints](tuple, ())
    lhs_ragged_dims = Attribute[Ints](tuple, ())
    rhs_group_dims = Attribute[Ints](tuple, ())
    fft_length = Attribute[Ints](tuple, ())
    results = Attribute[Ints](tuple, ())
    output_to_operand_aliasing = Attribute[tuple[OutputOperandAlias, ...]](tuple, ())
    offset_dims = Attribute[Ints](tuple, ())
    collapsed_slice_dims = Attribute[Ints](tuple, ())
    start_index_map = Attribute[Ints](tuple, ())
    operand_batching_dims = Attribute[Ints](tuple, ())
    start_indices_batching_dims = Attribute[Ints](tuple, ())
    slice_sizes = Attribute[Ints](tuple, ())
    dynamic_slice_sizes = Attribute[Ints](tuple, ())
    update_window_dims = Attribute[Ints](tuple, ())
    inserted_window_dims = Attribute[Ints](tuple, ())
    scatter_dims_to_operand_dims = Attribute[Ints](tuple, ())
    input_batching_dims = Attribute[Ints](tuple, ())
    scatter_indices_batching_dims = Attribute[Ints](tuple, ())
    slice = Attribute[Triples](tuple)
    padding = Attribute[Triples](tuple)
    source_target_pairs = Attribute[tuple[Ints, ...]](tuple, ())
    index = Attribute[int](int)
    parameter_number = Attribute[int](int)
    iota_dimension = Attribute[int](int, 0)
    index_vector_dim = Attribute[int](int)
    exponent_bits = Attribute[int](int)
    mantissa_bits = Attribute[int](int)
    feature_group_count = Attribute[int](int, 1)
    batch_group_count = Attribute[int](int, 1)
    feature_index = Attribute[int](int, 0)
    epsilon = Attribute[float]((int, float), 0.0)
    k = Attribute[int](int)
    num_carries = Attribute[int](int, 0)
    num_keys = Attribute[int](int, 1)
    line_lanes = Attribute[int](int, 1)
    delta = Attribute[int](int, 1)
    largest = Attribute[bool](bool, True)
    is_reverse = Attribute[bool](bool, False)
    is_stable = Attribute[bool](bool, False)
    lower = Attribute[bool](bool, False)
    left_side = Attribute[bool](bool, False)
    unit_diagonal = Attribute[bool](bool, False)
    direction = Attribute[str](str)
    kind = Attribute[str](str, "kLoop")
    fft_type = Attribute[str](str)
    transpose_a = Attribute[str](str, "NO_TRANSPOSE")
    distribution = Attribute[str](str)
    algorithm = Attribute[str](str, "")
    custom_call_target = Attribute[str](str, "")
    backend_config = Attribute[str](str, "")
    literal = Attribute[Array]((np.ndarray, np.generic))
    window = Attribute[Window](Window, Window())
    dim_labels = Attribute[ConvDims](ConvDims)
    to_apply = Attribute[HloComputation](HloComputation)
    calls = Attribute[HloComputation](HloComputation)
    condition = Attribute[HloComputation](HloComputation)
    body = Attribute[HloComputation](HloComputation)
    true_computation = Attribute[HloComputation](HloComputation)
    false_computation = Attribute[HloComputation](HloComputation)
    branch_computations = Attribute[tuple[HloComputation, ...]](tuple, ())
    select = Attribute[HloComputation](HloComputation)
    scatter = Attribute[HloComputation](HloComputation)

    def __init__(
        self,
        opcode: str,
        name: str,
        shape: Shape,
        operands: Iterable[HloInstruction] = (),
        attrs: dict[str, object] | None = None,
    ) -> None:
        self.opcode = opcode
        self.name = name  # without the leading %
        self.shape = shape
        self.operands: list[HloInstruction] = list(operands)
        self.attrs: dict[str, object] = attrs if attrs is not None else {}
        self.users: dict[HloInstruction, int] = {}  # user -> how many of its operands
        self.computation: HloComputation | None = None
        self.location: tuple[SourceText, int] | SourceSpan | None = None
        for operand in self.operands:
            operand.users[self] = operand.users.get(self, 0) + 1

    @property
    def home(self) -> HloComputation:
        """The computation it stands in; an instruction in none is a bug of the caller."""
        assert self.computation is not None, f"%{self.name} is in no computation"
        return self.computation

    @property
    def span(self) -> SourceSpan | None:
        """Where it stands in the source; line and column are computed only when asked for."""
        if isinstance(self.location, tuple):
            source, offset = self.location
            return source.span(offset)
        return self.location

    @span.setter
    def span(self, span: SourceSpan | None) -> None:
        self.location = span

    @property
    def array(self) -> ArrayShape:
        """The shape, known to be an array; a tuple here is a bug of the caller."""
        assert isinstance(self.shape, ArrayShape), f"%{self.name} is not an array: {self.shape}"
        return self.shape

    @property
    def branches(self) -> tuple[HloComputation, ...]:
        """What a conditional chooses from: by number, or (true, false) for a pred selector."""
        if "true_computation" in self.attrs:
            return (self.true_computation, self.false_computation)
        return self.branch_computations

    @property
    def is_total_order(self) -> bool:
        """Whether a comparison of floats is of all bit patterns: -NaN < -0 < +0 < NaN."""
        return self.attrs.get("type") == "TOTALORDER"

    def ints(self, name: str) -> Ints:
        """The list of numbers under a name that is not known here; absent means empty."""
        return Attribute[Ints](tuple, (), name).of(self)

    def called_computations(self) -> list[HloComputation]:
        """The computations its attributes name, in attribute order."""
        found: list[HloComputation] = []
        for value in self.attrs.values():
            if isinstance(value, HloComputation):
                found.append(value)
            elif isinstance(value, tuple) and value and isinstance(value[0], HloComputation):
                found += value  # all of them are: lists of numbers need not be looked through
        return found

    def control_predecessors(self) -> tuple[HloInstruction, ...]:
        """Instructions that must run before this one although it does not use them."""
        value = self.attrs.get(CONTROL, ())
        assert isinstance(value, tuple)
        return value

    def set_control_predecessors(self, found: Iterable[HloInstruction]) -> None:
        """Replace the control predecessors: those of this computation, each once."""
        computation = self.home
        for before in self.control_predecessors():
            computation.control_successors.get(before, {}).pop(self, None)
        kept = dict.fromkeys(p for p in found if p.computation is computation)
        kept.pop(self, None)
        self.attrs.pop(CONTROL, None)
        if kept:
            self.attrs[CONTROL] = tuple(kept)
        for before in kept:
            computation.control_successors.setdefault(before, {})[self] = None

    def set_operand(self, index: int, operand: HloInstruction) -> None:
        """Replace operand `index`, keeping both use lists right."""
        self._drop_use(self.operands[index])
        self.operands[index] = operand
        operand.users[self] = operand.users.get(self, 0) + 1

    def set_operands(self, operands: Iterable[HloInstruction]) -> None:
        """Replace all operands."""
        for operand in self.operands:
            self._drop_use(operand)
        self.operands = list(operands)
        for operand in self.operands:
            operand.users[self] = operand.users.get(self, 0) + 1

    def replace_all_uses_with(self, other: HloInstruction) -> None:
        """Make every user (and the root, if it is this) use `other` instead.

        `other` itself may use this instruction (a wrapper around it); that use stays. Control
        edges go over to `other`, but for those that would make it wait for itself.
        """
        if other is self:
            return
        if self.computation is not None and self.computation.control_successors:
            self.computation.hand_on_control_edges(self, other)
        for user in list(self.users):
            if user is other:
                continue
            for index, operand in enumerate(user.operands):
                if operand is self:
                    user.set_operand(index, other)
        if self.computation is not None and self.computation.root is self:
            self.computation.root = other

    def _drop_use(self, operand: HloInstruction) -> None:
        count = operand.users[self] - 1
        if count:
            operand.users[self] = count
        else:
            del operand.users[self]

    def __repr__(self) -> str:
        names = ", ".join(f"%{o.name}" for o in self.operands)
        return f"%{self.name} = {self.opcode}({names})"


class HloModule:
    """A program: `computations`, callees before callers, and which of them is the entry."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.computations: dict[str, HloComputation] = {}
        self.entry_name = ""
        self.attrs: dict[str, object] = {}  # header attributes, e.g. entry_computation_layout
        self.made_up: tuple[str, ...] = ()  # constants whose values the model's text leaves out
        # Constants with numbers written ``-0``, and which: negative zeros, but not to XLA's parser.
        self.signless_zeros: dict[HloInstruction, tuple[int, ...]] = {}
        self._taken: dict[str, int] = {}

    @property
    def entry(self) -> HloComputation:
        """The entry computation."""
        return self.computations[self.entry_name]

    def add_computation(
        self, computation: HloComputation, *, keep_names: bool = False
    ) -> HloComputation:
        """Add a computation under a free name; its instructions get names free in the module.

        With `keep_names` the instructions' names stay (the parser keeps what the text says:
        names need to differ only within one computation).
        """
        base = computation.name
        number = len(self.computations)
        while computation.name in self.computations:
            computation.name = f"{base}.{number}"
            number += 1
        computation.module = self
        self.computations[computation.name] = computation
        for instr in computation:
            if keep_names:
                self._taken.setdefault(instr.name, 0)
            else:
                instr.name = self.unique_name(instr.name)
        return computation

    def unique_name(self, name: str) -> str:
        """Return `name`, or ``name.N`` with the first free N, and reserve it."""
        if name not in self._taken:
            self._taken[name] = 0
            return name
        base, dot, tail = name.rpartition(".")
        base = base if dot and tail.isdigit() else name
        number = self._taken.get(base, 0) + 1
        while f"{base}.{number}" in self._taken:
            number += 1
        self._taken[base] = number
        self._taken[f"{base}.{number}"] = 0
        return f"{base}.{number}"

    def instruction_count(self) -> int:
        """Number of instructions in all computations."""
        return sum(len(c.instructions) for c in self.computations.values())


def depends_on(instr: HloInstruction, other: HloInstruction) -> bool:
    """Whether an instruction needs another one to have run: for its operands or by control edges."""
    pending, seen = [instr], {instr}
    while pending:
        for needed in _needs(pending.pop()):
            if needed is other:
                return True
            if needed not in seen:
                seen.add(needed)
                pending.append(needed)
    return False


def _needs(instr: HloInstruction) -> Iterator[HloInstruction]:
    yield from instr.operands
    yield from instr.control_predecessors()


def _cycle_error(path: list[HloInstruction], repeated: HloInstruction) -> CompileError:
    cycle = [*path[path.index(repeated) :], repeated]
    text = " -> ".join(f"%{instr.name}" for instr in cycle)
    return CompileError(f"%{repeated.name} uses its own result: {text}", repeated.span)
