from __future__ import annotations

import numpy as np
import pytest

from compiler.diagnostics import CompileError
from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import BF16, F32, PRED, S32
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.shape import array
from compiler.hlo.verifier import verify


def test_a_softmax_is_built_and_verifies() -> None:
    b = HloBuilder("softmax")
    x = b.parameter(array(F32, 8, 128), "x")
    lowest = b.constant(F32, -np.inf)
    top = b.reduce(x, lowest, (1,), b.scalar("maximum", F32))
    e = b.unary("exponential", b.subtract(x, b.broadcast(top, (8, 128), (0,))))
    total = b.reduce(e, b.constant(F32, 0), (1,), b.scalar("add", F32))
    module = b.build_entry(b.divide(e, b.broadcast(total, (8, 128), (0,))))
    verify(module)
    assert list(module.computations) == ["maximum_f32", "add_f32", "softmax"]
    text = print_module(module)
    assert print_module(parse_module(text)) == text


def test_scalar_computations_are_shared() -> None:
    b = HloBuilder("e")
    assert b.scalar("add", F32) is b.scalar("add", F32)
    assert b.scalar("add", F32) is not b.scalar("add", BF16)


def test_every_family_has_a_method() -> None:
    b = HloBuilder("e")
    x = b.parameter(array(F32, 4, 6))
    i = b.parameter(array(S32))
    k = b.constant(F32, 1.5)
    assert b.transpose(x, (1, 0)).array.dims == (6, 4)
    assert b.reshape(x, (24,)).array.dims == (24,)
    assert b.slice(x, (0, 1), (4, 6), (2, 1)).array.dims == (2, 5)
    assert b.pad(x, k, ((1, 1, 0), (0, 0, 1))).array.dims == (6, 11)
    assert b.concatenate([x, x], 1).array.dims == (4, 12)
    assert b.reverse(x, (0,)).array.dims == (4, 6)
    assert b.iota(S32, (3, 2), 1).array.dims == (3, 2)
    assert b.convert(x, BF16).array.dtype == BF16
    assert b.bitcast_convert(x, BF16).array.dims == (4, 6, 2)
    assert b.compare(x, x, "LT").array.dtype == PRED
    assert b.select(b.compare(x, x, "EQ"), x, x).array.dims == (4, 6)
    assert b.clamp(k, x, k).array.dims == (4, 6)
    assert b.dynamic_slice(x, (i, i), (2, 3)).array.dims == (2, 3)
    assert b.dynamic_update_slice(x, b.slice(x, (0, 0), (1, 1)), (i, i)).array.dims == (4, 6)
    assert b.dot(x, x, ((1,), (1,)), dtype=BF16).array == array(BF16, 4, 4)
    window = Window((WindowDim(2, stride=2), WindowDim(1)))
    assert b.reduce_window(x, k, window, b.scalar("add", F32)).array.dims == (2, 6)
    verify(b.build_entry(b.tuple([x, b.not_(b.compare(x, x, "GE"))])))


def test_gather_scatter_and_convolution_take_their_attributes() -> None:
    b = HloBuilder("e")
    table = b.parameter(array(F32, 50, 8))
    ids = b.parameter(array(S32, 3, 5))
    rows = b.gather(
        table,
        ids,
        offset_dims=(2,),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=2,
        slice_sizes=(1, 8),
    )
    assert rows.array.dims == (3, 5, 8)
    summed = b.scatter(
        [table],
        ids,
        [rows],
        b.scalar("add", F32),
        update_window_dims=(2,),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=2,
    )
    image = b.parameter(array(F32, 2, 8, 8, 3))
    kernel = b.parameter(array(F32, 3, 3, 3, 4))
    window = Window((WindowDim(3, 1, 1, 1), WindowDim(3, 2, 0, 1)))
    labels = ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    y = b.convolution(image, kernel, window, labels)
    assert y.array.dims == (2, 8, 4, 4)
    module = b.build_entry(b.tuple([summed, y]))
    verify(module)
    assert print_module(parse_module(print_module(module))) == print_module(module)


def test_control_flow() -> None:
    b = HloBuilder("e")
    ten = HloBuilder("below_ten", b.module)
    i = ten.parameter(array(S32))
    condition = ten.build(ten.compare(i, ten.constant(S32, 10), "LT"))
    step = HloBuilder("step", b.module)
    j = step.parameter(array(S32))
    body = step.build(step.add(j, step.constant(S32, 1)))
    loop = b.while_(condition, body, b.constant(S32, 0))
    two = b.conditional(b.compare(loop, loop, "EQ"), (body, body), (loop, loop))
    many = b.conditional(loop, (body, body), (loop, loop))
    module = b.build_entry(b.tuple([two, many, b.call(body, [loop])]))
    verify(module)
    assert print_module(parse_module(print_module(module))) == print_module(module)


def test_fusion_and_sort_and_custom_call() -> None:
    b = HloBuilder("e")
    x = b.parameter(array(F32, 16))
    f = HloBuilder("fused", b.module)
    body = f.build(f.negate(f.parameter(array(F32, 16))))
    less = HloBuilder("less", b.module)
    p, q = less.parameter(array(F32)), less.parameter(array(F32))
    comparator = less.build(less.compare(p, q, "LT"))
    ordered = b.sort([b.fusion(body, [x], "kLoop")], 0, comparator, stable=True)
    verify(b.build_entry(b.custom_call("Target", [ordered], array(F32, 2))))


def test_what_does_not_fit_is_refused_at_once() -> None:
    b = HloBuilder("e")
    x = b.parameter(array(F32, 4))
    with pytest.raises(CompileError, match="want the same dimensions"):
        b.add(x, b.parameter(array(F32, 5)))
    with pytest.raises(CompileError, match="has 4 elements"):
        b.reshape(x, (5,))
