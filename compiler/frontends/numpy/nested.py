"""A function traced as a computation of its own: the body of a loop, a branch.

The function may use arrays of the traces around it. They become parameters behind its own
(`Nested.captured`), and who calls the computation passes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.ops import as_tracer, convert
from compiler.frontends.numpy.promotion import OperandType
from compiler.frontends.numpy.pytree import TreeDef, flatten, unflatten
from compiler.frontends.numpy.tracer import Trace, Tracer
from compiler.hlo.builder import HloBuilder
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.rewrite.graph import remove_unneeded


@dataclass(frozen=True)
class Leaf:
    """What a leaf of a tree is while its value is not known; `is_weak` as of a `Tracer`."""

    shape: ArrayShape
    is_weak: bool = False

    @classmethod
    def of(cls, value: Tracer) -> Leaf:
        """The leaf that an array is."""
        return cls(value.instr.array, value.is_weak)

    @property
    def type(self) -> OperandType:
        """The element type."""
        return OperandType(self.shape.dtype.numpy, self.is_weak)

    def __str__(self) -> str:
        return f"{self.shape.dtype}{list(self.shape.dims)}"


@dataclass(frozen=True)
class Nested:
    """A traced function: its computation has no root yet.

    `inputs` are the function's own parameters, leaf by leaf; `captured` has the parameter for each
    array of the trace around it; `outputs` are the leaves of what it returned, `tree` their tree.
    """

    trace: Trace
    inputs: list[HloInstruction]
    outputs: list[Tracer]
    tree: TreeDef

    @property
    def captured(self) -> Mapping[HloInstruction, HloInstruction]:
        """The parameter for each array that the function took from around it."""
        return self.trace.lifted

    @property
    def builder(self) -> HloBuilder:
        """What appends to the computation."""
        return self.trace.builder

    def converted(self, types: Sequence[OperandType]) -> list[HloInstruction]:
        """The outputs in other element types."""
        pairs = zip(self.outputs, types, strict=True)
        return [convert(output, type.dtype).instr for output, type in pairs]

    def build(
        self,
        slots: Sequence[HloInstruction],
        places: Mapping[HloInstruction, int],
        root: Callable[[Sequence[HloInstruction]], HloInstruction],
    ) -> HloComputation:
        """Finish the computation as one of a single tuple, which has the shapes of `slots`.

        `places` says in which slot each parameter so far is found, and `root` makes the result of
        the slots' values.
        """
        computation = self.builder.computation
        shape = TupleShape(tuple(slot.shape for slot in slots))
        before = list(computation.parameters)
        attrs: dict[str, object] = {"parameter_number": 0}
        state = HloInstruction("parameter", "state", shape, (), attrs)
        computation.add(state)
        values = [self.builder.get_tuple_element(state, i) for i in range(len(slots))]
        computation.root = root(values)
        for parameter in before:
            parameter.replace_all_uses_with(values[places[parameter]])
            computation.parameters.remove(parameter)
            computation.instructions.pop(parameter)
        computation.sort()
        remove_unneeded(computation)
        return self.builder.build(computation.root)


def trace_nested(
    outer: Trace,
    name: str,
    function: Callable[..., object],
    arguments: TreeDef,
    leaves: Sequence[Leaf],
) -> Nested:
    """Trace a function on a tuple of trees (`arguments`) of the given leaves."""
    builder = HloBuilder(outer.builder.module.unique_name(name), outer.builder.module)
    with outer.nested(builder).opened() as inner:
        inputs = [builder.parameter(leaf.shape) for leaf in leaves]
        tracers = [
            Tracer(inner, instr, is_weak=leaf.is_weak)
            for instr, leaf in zip(inputs, leaves, strict=True)
        ]
        given = unflatten(arguments, tracers)
        assert isinstance(given, tuple)
        results, tree = flatten(function(*given))
        outputs = [as_tracer(inner, result) for result in results]
    return Nested(inner, inputs, outputs, tree)


def expect_tree(what: str, found: TreeDef, want: TreeDef) -> None:
    """Raise CompileError if a function returned another tree than it should."""
    if found != want:
        raise CompileError(
            f"{what} returns {_described(found)}, want {_described(want)}: the same containers with "
            "as many arrays"
        )


def _described(tree: TreeDef) -> str:
    if tree.kind is None:
        return "an array"
    if tree.kind is type(None):
        return "None"
    inside = ", ".join(_described(child) for child in tree.children)
    return f"{tree.kind.__name__}({inside})"
