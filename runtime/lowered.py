"""A traced function before and after it is compiled: `Lowered` and `Compiled`, as in JAX's AOT interface."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.pytree import TreeDef, unflatten
from compiler.hlo.host_types import fitted
from compiler.hlo.ir import HloModule
from compiler.hlo.printer import print_module
from compiler.options import CompileOptions
from runtime.buffer import Array
from runtime.call_signature import BoundCall
from runtime.executable import Executable
from runtime.jit_shardings import Placing
from runtime.machines import MachineOptions
from runtime.program_store import Compilation, executable_of
from runtime.report import Report
from runtime.sharded_array import ShardedArray
from runtime.slice_executable import SliceExecutable
from tpu_sim.jit.translated import DEFAULT_TRIPS

Bind = Callable[[tuple[object, ...], dict[str, object], dict[str, object] | None], BoundCall]
"""Arguments by position and by name; static arguments, if those are not among them."""
_ON_DEVICES = (Array, ShardedArray)


class Compiled:
    """A function compiled for one signature. Call it with arguments of that one: as the function, or
    without the static ones, as in JAX.

    `executable` is what runs, leaf by leaf.
    """

    def __init__(
        self, bind: Bind, call: BoundCall, executable: Executable, out_tree: TreeDef
    ) -> None:
        self.executable = executable
        self.out_tree = out_tree
        self._bind = bind
        self._key = call.key
        self._statics = call.statics

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run it. Raises CompileError for arguments of another signature."""
        call = self._call(args, kwargs)
        if call.key != self._key:
            raise CompileError(
                f"compiled for another signature: {self._key.difference(call.key)}; call the jitted "
                "function itself, which compiles for each"
            )
        return self.run(call)

    def _call(self, args: tuple[object, ...], kwargs: dict[str, object]) -> BoundCall:
        """The call with static arguments where those are given, else without."""
        short = self._without_statics(args, kwargs)
        if short is not None and short.key == self._key:
            return short
        try:
            full = self._bind(args, kwargs, None)
        except (TypeError, CompileError):
            if short is None:
                raise
            return short
        return full if short is None or full.statics.keys() >= self._statics.keys() else short

    def _without_statics(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> BoundCall | None:
        if self._statics:
            with suppress(TypeError):
                return self._bind(args, kwargs, self._statics)
        return None

    def run(self, call: BoundCall) -> Any:
        """Run it on a call that has its signature."""
        arrays = [
            leaf if isinstance(leaf, _ON_DEVICES) else fitted(np.asarray(leaf), type.dtype)
            for leaf, type in zip(call.leaves, call.types, strict=True)
        ]
        sized = [leaf for leaf in call.leaves if hasattr(leaf, "shape")]
        on_device = bool(sized) and all(isinstance(leaf, _ON_DEVICES) for leaf in sized)
        run = self.executable.call(arrays, on_device=on_device)
        return unflatten(self.out_tree, run.results)

    def as_text(self, level: str = "hlo") -> str:
        """The program: "hlo" after all passes, "llo", or "tpu" (bundles)."""
        return self.executable.text(level)

    def estimate(self, trips: int = DEFAULT_TRIPS) -> Report:
        """What a call would cost (`Executable.estimate`)."""
        return self.executable.estimate(trips)

    @property
    def report(self) -> Report | None:
        """What the last call cost; None before the first."""
        return self.executable.report

    def __repr__(self) -> str:
        return f"<tpuc.Compiled {self.executable!r}>"


class Lowered:
    """A function traced for one signature: its HLO module, not compiled yet."""

    def __init__(
        self,
        bind: Bind,
        call: BoundCall,
        module: HloModule,
        out_tree: TreeDef,
        placing: Placing,
        options: CompileOptions,
    ) -> None:
        self.out_tree = out_tree
        self._bind = bind
        self._call = call
        self._module = module
        self._text = print_module(module)
        self._placing = placing
        self._options = options

    def as_text(self) -> str:
        """The HLO as it was traced, before any pass."""
        return self._text

    def compile(self) -> Compiled:
        """Compile it, or find it among the programs compiled before."""
        devices, cores = self._placing.devices, self._placing.cores

        def compile_now() -> Compilation:
            compiler = importlib.import_module("runtime.compilation")
            made: Compilation = compiler.compile_source(
                self._text, self._module.name, cores, devices[0].chip, self._options
            )
            return made

        machine = MachineOptions()
        executable = executable_of(self._text, devices, self._options, machine, compile_now, cores)
        if isinstance(executable, SliceExecutable):
            executable.mesh = self._placing.mesh
        return Compiled(self._bind, self._call, executable, self.out_tree)

    def estimate(self, trips: int = DEFAULT_TRIPS) -> Report:
        """What a call would cost: compiled, not run."""
        return self.compile().estimate(trips)

    def __repr__(self) -> str:
        count = self._module.instruction_count()
        return f"<tpuc.Lowered {self._module.name}: {count} HLO instructions>"
