"""The one place where a fusion gets its windows: as its config says, else as the search finds.

`WindowPlanner` remembers the blocks found for equal fusions, so that passes may ask as often as
they like. A config that cannot be obeyed is the user's error, never silently replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar

from compiler.analysis.dot_parts import dot_parts
from compiler.analysis.fusion_body import carried_count, fusion_body
from compiler.analysis.grid_steps import GridSteps
from compiler.analysis.iteration_space import IterationDim, iteration_space
from compiler.analysis.vmem_scope import scoped_chip
from compiler.analysis.window_config import (
    OWN,
    REQUEST,
    WindowChoice,
    has_choice,
    is_matrix_space,
    plan_config,
    read_choice,
    read_config,
)
from compiler.analysis.window_cost import PlanFacts, plan_cost, plan_facts
from compiler.analysis.window_search import (
    Candidates,
    cheapest,
    has_plan,
    make_plan,
    moves_together,
    no_windows,
)
from compiler.analysis.windows import Blocks, WindowPlan
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.keys import Key, computation_key
from compiler.kernels.plan import KernelPlan
from compiler.kernels.planning import kernel_plan
from compiler.kernels.verifier import verify_plan
from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.verification import is_verifying

_K = TypeVar("_K")
_T = TypeVar("_T")
_Parts = tuple[HloInstruction | None, list[tuple[object, ...]]]
Config = dict[str, dict[str, object]]
PLANNED_KINDS = ("kLoop", "kInput", "kOutput")
"""Fusions of other kinds (kCustom) have kernels that choose their windows themselves."""
_RECENT = 64
"""Fusions whose candidates are kept: passes ask about one several times in a row, and again after the others
of its neighbourhood."""
_STEPPED = 1024
"""Fusions whose steps are kept: passes that move arrays ask about each with its arrays elsewhere."""

_NUMBERED = 8192
"""Computations whose numbers are kept, for all fusions of a large training step."""


@dataclass
class WindowPlanner:
    """Plans fusions for a chip; `precision` is that of f32 dots that state none."""

    chip: Chip
    precision: str = "default"
    known: dict[Key, Blocks | None] = field(default_factory=dict)
    known_facts: dict[Key, PlanFacts] = field(default_factory=dict)
    configs: dict[Key, Config] = field(default_factory=dict)
    refused: set[Key] = field(default_factory=set)
    recent: dict[Key, Candidates] = field(default_factory=dict)
    stepped: dict[Key, GridSteps] = field(default_factory=dict)
    alike: dict[Key, GridSteps] = field(default_factory=dict)
    numbers: dict[Key, int] = field(default_factory=dict)
    numbered: dict[HloComputation, tuple[_Parts | None, int]] = field(default_factory=dict)

    def plan(self, fusion: HloInstruction) -> WindowPlan:
        """The windows of a kLoop, kInput or kOutput fusion.

        Raises UnsupportedError when no windows fit VMEM, CompileError when those that the fusion or
        its dot asks for in `backend_config` are impossible.
        """
        return _Question(self, fusion).plan()

    def kernel(self, fusion: HloInstruction) -> KernelPlan:
        """The kernel of such a fusion, with the windows of `plan`; errors as of `plan`."""
        question = _Question(self, fusion)
        kernel = question.kernel(question.plan())
        if is_verifying():
            verify_plan(kernel, question.chip)
        return kernel

    def refuse(self, fusion: HloInstruction) -> None:
        """Let `has_plan` be False for equal fusions: their kernel breaks some other limit."""
        self.refused.add(_Question(self, fusion).key())

    def without_refusals(self) -> WindowPlanner:
        """One that knows and learns the same, with refusals of its own."""
        return replace(self, refused=set())

    def is_refused(self, fusion: HloInstruction) -> bool:
        """Whether an equal fusion was refused."""
        return bool(self.refused) and _Question(self, fusion).key() in self.refused

    def has_plan(self, fusion: HloInstruction) -> bool:
        """Whether `plan` finds windows, and nobody refused them; CompileError as of `plan`."""
        return _Question(self, fusion).has_plan()

    def facts(self, fusion: HloInstruction) -> PlanFacts:
        """What the plan costs, moves and overwrites; errors as of `plan`.

        Asking costs little where an equal fusion was asked about.
        """
        question = _Question(self, fusion)
        asked = question.asked()
        parameters = fusion.calls.parameters
        if asked is not None:
            return plan_facts(question.obeyed(*asked), parameters)
        key = question.key()
        if key not in self.known_facts:
            self.known_facts[key] = plan_facts(question.found(key), parameters)
        return self.known_facts[key]

    def key(self, fusion: HloInstruction) -> Key:
        """Equal for fusions that get equal windows."""
        return _Question(self, fusion).key()

    def number(self, computation: HloComputation) -> int:
        """Equal for equal computations: in keys in place of their own, which take long to make and hash.

        A computation is looked at again once its instructions are others or have other operands or
        shapes. Attributes inside of fusions do not change from planning on, but for what is no part of
        a key.
        """
        parts: _Parts = (computation.root, [(i, i.shape, *i.operands) for i in computation])
        before, number = self.numbered.pop(computation, (None, -1))
        is_same = before == parts
        if not is_same or is_verifying():
            found = self.numbers.setdefault(computation_key(computation), len(self.numbers))
            assert not is_same or found == number, f"%{computation.name}: attributes were changed"
            number = found
        _remember(self.numbered, computation, (parts, number), _NUMBERED)
        return number

    def adopt(self, fusion: HloInstruction, blocks: Blocks) -> None:
        """Take these blocks for equal fusions instead of searching: they fit."""
        key = self.key(fusion)
        self.known[key] = blocks
        self.known_facts.pop(key, None)

    def rows(self, fusion: HloInstruction) -> int:
        """Rows of VMEM that the kernel's windows take; errors as of `plan`."""
        return self.kernel(fusion).rows

    def config(self, fusion: HloInstruction) -> Config:
        """What to write into the fusion's `backend_config` for its plan; errors as of `plan`."""
        question = _Question(self, fusion)
        asked = question.asked()
        if asked is not None:
            return plan_config(question.steps.body, question.steps.space, question.obeyed(*asked))
        key = question.key()
        if key not in self.configs:
            found = question.found(key)
            self.configs[key] = plan_config(question.steps.body, question.steps.space, found)
        return self.configs[key]


class _Question:
    """One fusion to plan."""

    def __init__(self, planner: WindowPlanner, fusion: HloInstruction) -> None:
        self.planner = planner
        self.chip = scoped_chip(planner.chip, fusion)
        self.fusion = fusion

    @cached_property
    def steps(self) -> GridSteps:
        """The steps of its grids, wherever its arrays lie; they name its nodes, as candidates do."""
        fusion, planner = self.fusion, self.planner
        what = (fusion.kind, carried_count(fusion), self._number)
        key = (*what, *fusion.calls)
        found = planner.stepped.pop(key, None)
        if found is None:
            body = fusion_body(fusion)
            parts = dot_parts(body.dot, planner.precision)
            alike = planner.alike.get(what)
            space = iteration_space(body, fusion.kind, parts) if alike is None else alike.space
            found = GridSteps(body, space, parts, alike=alike)
            planner.alike.setdefault(what, found)
        _remember(planner.stepped, key, found, _STEPPED)
        return found

    def plan(self) -> WindowPlan:
        """As asked for, as known, or as found."""
        asked = self.asked()
        return self.found(self.key()) if asked is None else self.obeyed(*asked)

    def has_plan(self) -> bool:
        """Whether there are windows as asked for, as known, or any at all."""
        if self.planner.refused and self.key() in self.planner.refused:
            return False
        asked = self.asked()
        if asked is not None:
            self.obeyed(*asked)
            return True
        known = self.planner.known
        if self.key() in known:
            return known[self.key()] is not None
        return has_plan(self.candidates(), self.chip)

    def found(self, key: Key) -> WindowPlan:
        """The cheapest plan, searched for unless an equal fusion was planned."""
        known = self.planner.known
        if key not in known:
            found = cheapest(self.candidates(), self.chip)
            known[key] = None if found is None else found.blocks
            if found is not None:
                return found
        blocks = known[key]
        if blocks is None:
            raise no_windows(self.fusion, self.chip)
        return self._made(blocks)

    def key(self) -> Key:
        """Equal for fusions that get equal blocks."""
        return (*self._kernel_key, self.chip.vmem_bytes)

    @cached_property
    def _number(self) -> int:
        return self.planner.number(self.fusion.calls)

    @cached_property
    def _kernel_key(self) -> Key:
        """Equal for fusions that get equal kernels of equal blocks, from one planner."""
        fusion = self.fusion
        shapes = tuple(o.shape for o in fusion.operands)
        return (fusion.kind, shapes, fusion.shape, self._number)

    def candidates(self) -> Candidates:
        """The fusion's kernels by blocks; they name its nodes, so another one has its own."""
        key = (*self._kernel_key, *self.fusion.calls)
        recent = self.planner.recent
        found = recent.pop(key, None)
        if found is None:
            found = Candidates(self.fusion, self.steps)
        _remember(recent, key, found, _RECENT)
        return found

    def _made(self, blocks: Blocks) -> WindowPlan:
        plan = make_plan(self.fusion, self.steps, blocks)
        return replace(plan, cost=plan_cost(self.kernel(plan), self.chip))

    def kernel(self, plan: WindowPlan) -> KernelPlan:
        """The kernel with these windows."""
        return kernel_plan(self.steps.body, plan, self.steps.parts)

    def asked(self) -> tuple[HloInstruction, WindowChoice] | None:
        """Who asks for what: the fusion first, else its dot."""
        if not (has_choice(self.fusion) or any(map(_is_choosing_dot, self.fusion.calls))):
            return None
        is_matrix = is_matrix_space(self.steps.body, self.steps.space)
        for instr in (self.fusion, self.steps.body.dot):
            if instr is None or not has_choice(instr):
                continue
            is_stray = self.steps.body.dot is not None and OWN not in read_config(instr)
            if is_stray and not is_matrix:
                raise CompileError(
                    f"%{instr.name}: window_config (or --window) of a dot whose fusion's results "
                    "have other dimensions than the canonical dot; remove it",
                    instr.span or self.fusion.span,
                )
            choice = read_choice(instr, is_matrix=is_matrix)
            if choice is not None:
                return instr, choice
        return None

    def obeyed(self, asker: HloInstruction, choice: WindowChoice) -> WindowPlan:
        """The plan that `asker` asks for, in the cheapest grid order unless it says which."""
        wanted = _Wanted(asker, self)
        sizes = wanted.sizes(choice)
        orders = wanted.orders(choice)
        wanted.check_steps(choice, sizes)
        plans = [self._made(Blocks(sizes, order)) for order in orders]
        if not moves_together(plans[0], self.steps.space):
            wanted.fail("a result ends inside of a block; ask for a whole dimension")
        best = min(plans, key=lambda p: p.estimated_cycles)
        rows = self.kernel(best).rows
        if rows > self.chip.vmem_rows:
            wanted.fail(
                f"needs {rows * 512} bytes of VMEM, {self.chip.name} has {self.chip.vmem_bytes}"
            )
        return best


def _remember(known: dict[_K, _T], key: _K, value: _T, most: int) -> None:
    """Keep a value as the last one; of more than `most` the one asked for longest ago goes."""
    if len(known) >= most:
        del known[next(iter(known))]
    known[key] = value


def _is_choosing_dot(instr: HloInstruction) -> bool:
    return instr.opcode == "dot" and has_choice(instr)


class _Wanted:
    """Turns what a config asks for into blocks; every refusal names who asked."""

    def __init__(self, asker: HloInstruction, question: _Question) -> None:
        self.asker = asker
        self.question = question
        self.space = question.steps.space
        self.is_matrix = is_matrix_space(question.steps.body, question.steps.space)

    def fail(self, why: str) -> NoReturn:
        """Raise the user's error."""
        span = self.asker.span or self.question.fusion.span
        name = read_config(self.asker).get(REQUEST)
        asked = f"%{self.asker.name}: windows asked for in backend_config"
        raise CompileError(f"{asked if name is None else f'--window {name}'}: {why}", span)

    def sizes(self, choice: WindowChoice) -> tuple[int, ...]:
        """Units per dimension of the space."""
        dims = self.space.dims
        lead = sum(d.parallel for d in dims) - 2 if self.is_matrix else len(dims)
        given = choice.blocks or ((1,) * lead if self.is_matrix else ())
        if len(given) != lead:
            self.fail(f"{len(given)} blocks in tpuc.blocks, want {lead}")
        sizes = [
            self._units(dim, units, f"dimension {i}")
            for i, (dim, units) in enumerate(zip(dims, given, strict=False))
        ]
        if self.is_matrix:
            sizes += self._matrix(choice)
        return tuple(sizes)

    def _matrix(self, choice: WindowChoice) -> list[int]:
        dims = [d for d in self.space.dims if d.parallel][-2:]
        found = [
            self._elements(dim, choice.matrix.get(name), name)
            for name, dim in zip("MN", dims, strict=True)
        ]
        asked = choice.matrix.get("K")
        last = self.space.dims[-1]
        if not last.parallel:
            return [*found, self._elements(replace(last, splittable=True), asked, "K")]
        dot = self.question.steps.body.dot
        assert dot is not None
        depth = dot.operands[0].array.dims[-1]
        if asked is not None and asked < depth:
            self.fail(
                f"K in blocks of {asked} of {depth}: the grid cuts K only of dots of one bf16 "
                f"pass, this one has {self.question.steps.parts.passes}"
            )
        return found

    def _elements(self, dim: IterationDim, elements: int | None, name: str) -> int:
        if elements is None or elements >= dim.size:
            return dim.tiles
        if elements % dim.unit:
            self.fail(f"{name} in blocks of {elements}: want multiples of {dim.unit}")
        return self._units(dim, elements // dim.unit, name)

    def _units(self, dim: IterationDim, units: int, name: str) -> int:
        """A block of so many units, checked."""
        if units >= dim.tiles:
            return dim.tiles
        if units == 0:
            self.fail(f"{name} in empty blocks")
        if not dim.splittable:
            self.fail(
                f"{name} in blocks of {units * dim.unit}: its {dim.size} elements cannot be cut in "
                "this fusion (whole rows are needed, or arrays pad it differently)"
            )
        if not (dim.parallel or dim.open_ended) and dim.tiles % units:
            self.fail(
                f"{name} in blocks of {units * dim.unit}, which do not divide "
                f"{dim.tiles * dim.unit}; want one of {_divisor_list(dim)}"
            )
        return units

    def orders(self, choice: WindowChoice) -> list[tuple[int, ...]]:
        """Grid orders to choose from."""
        if choice.order is None:
            return self.question.steps.orders
        outer = [i for i, d in enumerate(self.space.dims) if d.parallel]
        inner = [i for i, d in enumerate(self.space.dims) if not d.parallel]
        if sorted(choice.order) != outer:
            self.fail(f"tpuc.order {list(choice.order)}: want a permutation of {outer}")
        return [(*choice.order, *inner)]

    def check_steps(self, choice: WindowChoice, sizes: tuple[int, ...]) -> None:
        """iteration_bounds, where given, must be what the blocks lead to."""
        if choice.steps is None or not self.is_matrix:
            return
        steps = [-(-d.tiles // b) for d, b in zip(self.space.dims, sizes, strict=True)]
        if self.space.dims[-1].parallel:
            steps.append(1)
        wanted = (*steps[:-3], steps[-2], steps[-3], steps[-1])
        given = choice.steps
        if given not in (wanted, wanted[-3:]):
            self.fail(
                f"iteration_bounds {list(given)}, but these blocks take {list(wanted)} steps "
                "(of N, M and K)"
            )


def _divisor_list(dim: IterationDim) -> str:
    return ", ".join(str(n * dim.unit) for n in range(1, dim.tiles + 1) if dim.tiles % n == 0)
