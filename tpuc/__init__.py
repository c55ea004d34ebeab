"""tpuc: a TPU in a box.

    exe = tpuc.compile("model.hlo", target="v5e")     # path or text
    outs = exe(*arrays)                               # on an emulated TPU
    exe.report.cycles, exe.text("tpu")

    first, second = tpuc.devices("v5e:2x1")           # chips of a slice
    exe(tpuc.device_put(x, second))                   # runs there; values are waited for when asked

    rows = tpuc.NamedSharding(mesh, tpuc.PartitionSpec("data"))   # mesh = tpuc.make_mesh(..)
    x = tpuc.device_put(x, rows)                      # in pieces on a slice's devices

    @tpuc.jit                                         # ordinary NumPy code
    def layer(x, w, b): return np.maximum(x @ w + b, 0)

Heavy parts (the compiler, LLVM) load on first use.

To be imported from outside: the package alone, whose names are what people use.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.diagnostics import CompileError, ResourceExhaustedError, UnsupportedError
    from runtime.api import compile, device_put, devices
    from runtime.buffer import Array
    from runtime.client import Device
    from runtime.executable import Executable, Run
    from runtime.from_jax import from_jax
    from runtime.jit import RecompileWarning, jit
    from runtime.jit_shardings import with_sharding_constraint
    from runtime.lowered import Compiled, Lowered
    from runtime.mesh import Mesh, NamedSharding, PartitionSpec, make_mesh
    from runtime.sharded_array import ShardedArray
    from runtime.transforms import (
        checkpoint,
        custom_jvp,
        custom_vjp,
        grad,
        hessian,
        jacfwd,
        jacobian,
        jacrev,
        jvp,
        value_and_grad,
        vjp,
        vmap,
    )
    from runtime.workers import WorkerLostError
    from tpu_sim.isa.chips import Chip, ChipError, load_chip
    from tpu_sim.isa.errors import ProgramError, TpucError
    from tpu_sim.machine.faults import MachineFault
    from tpuc import lax, numpy, random, special
    from tpuc.debugger.breakpoints import DebuggerError
    from tpuc.debugger.debugger import debug

__version__ = "0.1.0"
__all__ = [
    "Array",
    "Chip",
    "ChipError",
    "CompileError",
    "Compiled",
    "DebuggerError",
    "Device",
    "Executable",
    "Lowered",
    "MachineFault",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "ProgramError",
    "RecompileWarning",
    "ResourceExhaustedError",
    "Run",
    "ShardedArray",
    "TpucError",
    "UnsupportedError",
    "WorkerLostError",
    "checkpoint",
    "compile",
    "custom_jvp",
    "custom_vjp",
    "debug",
    "device_put",
    "devices",
    "from_jax",
    "grad",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "lax",
    "load_chip",
    "make_mesh",
    "numpy",
    "random",
    "special",
    "value_and_grad",
    "vjp",
    "vmap",
    "with_sharding_constraint",
    "__version__",
]

_MODULES = ("lax", "numpy", "random", "special")
_HOMES = {
    "Array": "runtime.buffer",
    "Chip": "tpu_sim.isa.chips",
    "ChipError": "tpu_sim.isa.chips",
    "CompileError": "compiler.diagnostics",
    "Compiled": "runtime.lowered",
    "DebuggerError": "tpuc.debugger.breakpoints",
    "Device": "runtime.client",
    "Executable": "runtime.executable",
    "Lowered": "runtime.lowered",
    "MachineFault": "tpu_sim.machine.faults",
    "Mesh": "runtime.mesh",
    "NamedSharding": "runtime.mesh",
    "PartitionSpec": "runtime.mesh",
    "ProgramError": "tpu_sim.isa.errors",
    "RecompileWarning": "runtime.jit",
    "ResourceExhaustedError": "compiler.diagnostics",
    "Run": "runtime.executable",
    "ShardedArray": "runtime.sharded_array",
    "TpucError": "tpu_sim.isa.errors",
    "UnsupportedError": "compiler.diagnostics",
    "WorkerLostError": "runtime.workers",
    "checkpoint": "runtime.transforms",
    "compile": "runtime.api",
    "custom_jvp": "runtime.transforms",
    "custom_vjp": "runtime.transforms",
    "debug": "tpuc.debugger.debugger",
    "device_put": "runtime.api",
    "devices": "runtime.api",
    "from_jax": "runtime.from_jax",
    "grad": "runtime.transforms",
    "hessian": "runtime.transforms",
    "jacfwd": "runtime.transforms",
    "jacobian": "runtime.transforms",
    "jacrev": "runtime.transforms",
    "jit": "runtime.jit",
    "jvp": "runtime.transforms",
    "load_chip": "tpu_sim.isa.chips",
    "make_mesh": "runtime.mesh",
    "value_and_grad": "runtime.transforms",
    "vjp": "runtime.transforms",
    "vmap": "runtime.transforms",
    "with_sharding_constraint": "runtime.jit_shardings",
}


def _refuse_strangers() -> None:
    """Raise ImportError when `compiler`, `runtime` or `tpu_sim` would be somebody else's package."""
    home = Path(__file__).resolve().parent.parent
    for name in ("compiler", "runtime", "tpu_sim"):
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if origin is None or origin.parent.parent != home:
            message = (
                f"tpuc needs its own package {name!r} beside it in {home}, but Python finds "
                f"{origin or 'none'}: a stranger's {name!r} shadows it. Remove that from sys.path, "
                f"or run where it is not importable."
            )
            raise ImportError(message)


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"tpuc.{name}")
    if name not in _HOMES:
        message = f"module 'tpuc' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not, for completion."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


_refuse_strangers()
