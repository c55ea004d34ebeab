"""Shardings of `tpuc.jit`: of arguments, results and values between; the devices that they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.pytree import TreeDef, flatten
from compiler.frontends.numpy.tracer import Tracer, open_trace
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import TupleShape
from runtime.client import Device, client_for, device_for
from runtime.mesh import Mesh, NamedSharding
from runtime.sharded_array import ShardedArray, put_sharded
from runtime.topology import Topology
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.torus import Slice

Shardings = Sequence[NamedSharding | None]
_meshes: ContextVar[list[Mesh] | None] = ContextVar("meshes of constraints", default=None)


@dataclass(frozen=True)
class Placing:
    """The devices that a traced function runs on: partition p on device p."""

    devices: Sequence[Device]
    cores: Slice
    mesh: Mesh | None = None


class JitShardings:
    """What `tpuc.jit` was told about shardings.

    `of_inputs` is one sharding for all arguments, or a tuple with a tree for each; a sharding stands
    for all leaves below it, None for "as the argument lies, else whatever is best". `of_outputs` is the
    same for the result.
    """

    def __init__(self, target: str | Chip | Device, of_inputs: object, of_outputs: object) -> None:
        self.target = target
        self.of_inputs = of_inputs
        self.of_outputs = of_outputs

    def key(self, leaves: Iterable[object]) -> tuple[NamedSharding | None, ...]:
        """What of the arguments' shardings a program depends on."""
        return tuple(leaf.sharding if isinstance(leaf, ShardedArray) else None for leaf in leaves)

    def place(
        self,
        module: HloModule,
        arguments: Sequence[object],
        out_tree: TreeDef,
        meshes: Sequence[Mesh],
    ) -> Placing:
        """Write shardings into a traced module and say where it runs.

        `arguments` are those that are traced, in their order; `meshes` those of constraints. Without
        any sharding it is a program for one device.
        """
        inputs = self._of_arguments(arguments)
        outputs = list(_leaf_shardings(self.of_outputs, out_tree, "out_shardings"))
        stated = [sharding.mesh for sharding in (*inputs, *outputs) if sharding is not None]
        found = [*stated, *meshes]
        if not found:
            device = device_for(self.target)
            return Placing([device], Topology(device.chip).cores)
        mesh = found[0]
        if any(other.device_list != mesh.device_list for other in found):
            raise CompileError("the shardings of one function are over meshes of the same devices")
        self._expect_target(mesh)
        if mesh.size == 1:
            return Placing(mesh.device_list, mesh.cores, mesh)
        _write(module, mesh.size, inputs, outputs)
        return Placing(mesh.device_list, mesh.cores, mesh)

    def _of_arguments(self, arguments: Sequence[object]) -> list[NamedSharding | None]:
        """For each leaf; where nothing is said, an argument's own."""
        given = self.of_inputs
        if isinstance(given, tuple | list) and len(given) != len(arguments):
            raise CompileError(
                f"in_shardings has {len(given)} entries for {len(arguments)} arguments"
            )
        leaves, tree = flatten(tuple(arguments))
        stated = _leaf_shardings(given, tree, "in_shardings")
        return [
            sharding or (leaf.sharding if isinstance(leaf, ShardedArray) else None)
            for sharding, leaf in zip(stated, leaves, strict=True)
        ]

    def _expect_target(self, mesh: Mesh) -> None:
        """A target beside shardings is the slice of their mesh, or its chip."""
        topology = mesh.device_list[0].topology
        named = self.target.topology if isinstance(self.target, Device) else None
        if named is None:
            assert isinstance(self.target, str | Chip)
            named = client_for(self.target).topology
        if named.chip_count > 1 and named != topology:
            raise CompileError(f"the target is {named.name}, the mesh is of {topology.name}")


def with_sharding_constraint(
    value: Tracer | ShardedArray | object, sharding: NamedSharding
) -> Tracer | ShardedArray:
    """In a traced function: the same value, lying as `sharding` says; elsewhere an array placed so.

    Dimensions that the spec leaves `UNCONSTRAINED` are cut as is best.
    """
    if not isinstance(value, Tracer):
        return put_sharded(value, sharding)  # type: ignore[arg-type]  # whatever NumPy takes
    found = _meshes.get()
    if found is not None:
        found.append(sharding.mesh)
    rule = lambda trace, x: Tracer(  # noqa: E731
        trace, _constrained(x.instr, sharding), is_weak=x.is_weak
    )
    trace = open_trace() or value.owner
    made = trace.run("with_sharding_constraint", rule, (value,), {})
    assert isinstance(made, Tracer)
    return made


@contextmanager
def meshes_of_constraints() -> Iterator[list[Mesh]]:
    """The meshes of all constraints that are traced meanwhile."""
    found: list[Mesh] = []
    token = _meshes.set(found)
    try:
        yield found
    finally:
        _meshes.reset(token)


def _constrained(instr: HloInstruction, sharding: NamedSharding) -> HloInstruction:
    attrs: dict[str, object] = {
        "custom_call_target": "Sharding",
        "sharding": sharding.to_hlo(instr.array.rank),
    }
    if sharding.spec.open_dims:
        dims = ",".join(map(str, sharding.spec.open_dims))
        attrs["backend_config"] = f'"unspecified_dims=[{dims}]"'
    assert instr.computation is not None
    made = HloInstruction("custom-call", "sharding", instr.shape, (instr,), attrs)
    return instr.computation.add(made)


def _leaf_shardings(given: object, tree: TreeDef, what: str) -> Iterator[NamedSharding | None]:
    """For each leaf of a tree what is said of it."""
    if given is None or isinstance(given, NamedSharding):
        yield from [given] * tree.leaf_count
        return
    keys = given.keys() if isinstance(given, dict) else None
    is_same = isinstance(given, dict | tuple | list) and len(given) == len(tree.children)
    if not is_same or (keys is not None and set(keys) != set(tree.keys)):
        raise CompileError(
            f"{what}: found {type(given).__name__}, want a NamedSharding, None or a tree of them like "
            "that of the values"
        )
    parts = [given[key] for key in tree.keys] if isinstance(given, dict) else list(given)  # type: ignore[call-overload]
    for part, child in zip(parts, tree.children, strict=True):
        yield from _leaf_shardings(part, child, what)


def _write(module: HloModule, count: int, inputs: Shardings, outputs: Shardings) -> None:
    """Shardings of parameters and results become attributes."""
    module.attrs["num_partitions"] = count
    entry = module.entry
    for parameter, sharding in zip(entry.parameters, inputs, strict=True):
        if sharding is not None:
            parameter.attrs["sharding"] = sharding.to_hlo(parameter.array.rank)
    free = ",".join("true" if sharding is None else "false" for sharding in inputs)
    module.attrs["allow_spmd_sharding_propagation_to_parameters"] = f"{{{free}}}"
    root = entry.root_instruction
    if not isinstance(root.shape, TupleShape):
        (sharding,) = outputs
        entry.root = root if sharding is None else _constrained(root, sharding)
        return
    results = [
        result if sharding is None else _constrained(result, sharding)
        for result, sharding in zip(root.operands, outputs, strict=True)
    ]
    entry.root = entry.add(HloInstruction("tuple", "results", root.shape, results, {}))
    entry.remove(root)
