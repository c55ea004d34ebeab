"""Ordinary NumPy code -> HLO: `trace(fn, args)` runs a function once on symbolic arrays.

    >>> import numpy as np
    >>> x, y = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    >>> module, _, _ = trace(lambda x, y: np.tanh(x @ y) + 1, (x, y))
    >>> module.entry.root_instruction.array.dims
    (2, 4)

Python control flow runs while tracing, so loops unroll, and a condition on an array's value is
refused: `compiler.frontends.numpy.control` has loops and branches that the chip runs. Arguments
and results are trees (`pytree`); their leaves are the parameters and results of the module, in
order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from compiler.autodiff.rule_names import DERIVATIVE
from compiler.frontends.numpy.changing import CHANGED
from compiler.frontends.numpy.complex_edges import with_complex_edges
from compiler.frontends.numpy.diagonals import DIAGONALS_FUNCTIONS
from compiler.frontends.numpy.differences import DIFFERENCE_FUNCTIONS
from compiler.frontends.numpy.editing import EDITING_FUNCTIONS
from compiler.frontends.numpy.errors import BadTypeError
from compiler.frontends.numpy.fourier import FFT_FUNCTIONS
from compiler.frontends.numpy.histograms import HISTOGRAM_FUNCTIONS
from compiler.frontends.numpy.indexing import INDEXING_FUNCTIONS, index
from compiler.frontends.numpy.integers import INTEGER_FUNCTIONS, INTEGER_UFUNCS
from compiler.frontends.numpy.linalg import LINALG_FUNCTIONS
from compiler.frontends.numpy.methods import ArrayMethods
from compiler.frontends.numpy.ops import as_tracer
from compiler.frontends.numpy.padding import PADDING_FUNCTIONS
from compiler.frontends.numpy.polynomials import POLYNOMIAL_FUNCTIONS
from compiler.frontends.numpy.predicates import PREDICATES_FUNCTIONS
from compiler.frontends.numpy.products import PRODUCT_FUNCTIONS, PRODUCT_UFUNCS
from compiler.frontends.numpy.promotion import OperandType, promote
from compiler.frontends.numpy.pytree import LEAF, TreeDef, flatten, unflatten
from compiler.frontends.numpy.rearranging import REARRANGING_FUNCTIONS
from compiler.frontends.numpy.reductions import REDUCTION_FUNCTIONS
from compiler.frontends.numpy.shaping import SHAPING_FUNCTIONS
from compiler.frontends.numpy.signals import SIGNALS_FUNCTIONS
from compiler.frontends.numpy.statistics import STATISTICS_FUNCTIONS
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer
from compiler.frontends.numpy.ufunc_methods import UFUNC_METHODS
from compiler.frontends.numpy.ufuncs import UFUNCS
from compiler.frontends.numpy.updates import updated
from compiler.frontends.numpy.vectors import VECTORS_FUNCTIONS, VECTORS_UFUNCS
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import from_numpy
from compiler.hlo.host_types import device_dtype
from compiler.hlo.ir import HloModule
from compiler.hlo.shape import ArrayShape
from compiler.rewrite.graph import remove_unneeded

_UFUNCS = with_complex_edges({**UFUNCS, **PRODUCT_UFUNCS, **VECTORS_UFUNCS, **INTEGER_UFUNCS})
_FUNCTIONS: dict[object, Rule] = {
    **DIAGONALS_FUNCTIONS,
    **DIFFERENCE_FUNCTIONS,
    **EDITING_FUNCTIONS,
    **FFT_FUNCTIONS,
    **HISTOGRAM_FUNCTIONS,
    **INDEXING_FUNCTIONS,
    **INTEGER_FUNCTIONS,
    **LINALG_FUNCTIONS,
    **PADDING_FUNCTIONS,
    **POLYNOMIAL_FUNCTIONS,
    **PREDICATES_FUNCTIONS,
    **PRODUCT_FUNCTIONS,
    **REARRANGING_FUNCTIONS,
    **REDUCTION_FUNCTIONS,
    **SHAPING_FUNCTIONS,
    **SIGNALS_FUNCTIONS,
    **STATISTICS_FUNCTIONS,
    **VECTORS_FUNCTIONS,
}


def traced_functions() -> frozenset[object]:
    """NumPy's functions that have a rule, those included that change an array."""
    return frozenset((*_UFUNCS, *_FUNCTIONS, *CHANGED))


def trace(
    function: Callable[..., object], args: Sequence[object], arg_names: Sequence[str] | None = None
) -> tuple[HloModule, TreeDef, TreeDef]:
    """Trace ``function(*args)``; return the module and the trees of arguments and results.

    A leaf of `args` is a Python scalar or anything with `shape` and `dtype` (values are not
    looked at). The module's parameters are the leaves of ``tuple(args)``; its result is a tuple
    of the result's leaves, or the bare array when the result is one. They are named after
    `arg_names`, one for each of `args`. Raises CompileError or
    UnsupportedError for what cannot be traced.
    """
    leaves, in_tree = flatten(tuple(args))
    builder = HloBuilder(_identifier(getattr(function, "__name__", "function")))
    names = _parameter_names(in_tree, arg_names)
    with Trace(builder, _UFUNCS, UFUNC_METHODS, _FUNCTIONS, index, updated).opened() as current:
        tracers = [
            _parameter(current, leaf, name) for leaf, name in zip(leaves, names, strict=True)
        ]
        arguments = unflatten(in_tree, tracers)
        assert isinstance(arguments, tuple)
        results, out_tree = flatten(function(*arguments))
        outputs = [_result(current, result).instr for result in results]
    root = outputs[0] if out_tree == LEAF else builder.tuple(outputs)
    builder.computation.root = root
    remove_unneeded(builder.computation)
    module = builder.build_entry(root)
    _drop_derivative_rules(module)
    return module, in_tree, out_tree


def _result(trace: Trace, result: object) -> Tracer:
    """A leaf of what the function returns."""
    try:
        return as_tracer(trace, result)
    except BadTypeError:
        raise BadTypeError(
            f"the function returns {result!r} of type {type(result).__name__}: want an array, a number, or a "
            "tree of them"
        ) from None


def _drop_derivative_rules(module: HloModule) -> None:
    """What only derivatives asked for; the program is not differentiated any more."""
    for computation in module.computations.values():
        for instr in computation:
            instr.attrs.pop(DERIVATIVE, None)


def _parameter_names(arguments: TreeDef, arg_names: Sequence[str] | None) -> list[str]:
    """``x`` for an array, ``x_w_0`` for one inside the tree `x`, ``arg_0`` where there are no names."""
    heads = arg_names or [f"arg_{i}" for i in range(len(arguments.children))]
    pairs = zip(heads, arguments.children, strict=True)
    return [_identifier("_".join(path)) for head, tree in pairs for path in tree.paths((head,))]


def _parameter(trace: Trace, leaf: object, name: str) -> Tracer:
    operand = abstract_type(leaf)
    dims = tuple(int(n) for n in getattr(leaf, "shape", ()))
    shape = ArrayShape(from_numpy(operand.dtype), dims)
    instr = trace.builder.parameter(shape, name)
    return Tracer(trace, instr, is_weak=operand.is_weak)


def abstract_type(leaf: object) -> OperandType:
    """The element type an argument has on the device; Python scalars are weak."""
    if isinstance(leaf, bool | int | float | complex) and not isinstance(leaf, np.generic):
        return promote([OperandType(np.asarray(leaf).dtype, is_weak=True)])
    dtype = getattr(leaf, "dtype", None)
    if dtype is None or not hasattr(leaf, "shape"):
        kind = type(leaf).__name__
        raise BadTypeError(
            f"argument of type {kind}: want an array, a number, or a tree of them; what the program is made "
            "for is a static argument: tpuc.jit(static_argnames=..)"
        )
    if isinstance(leaf, ArrayMethods):  # it is on the device, or will be
        return OperandType(np.dtype(dtype), is_weak=False)
    return OperandType(device_dtype(dtype, warns=True), is_weak=False)


def _identifier(text: str) -> str:
    """A name that HLO text allows."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", text).strip("_") or "function"
