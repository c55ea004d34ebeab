"""network-sort: passes and kernels against NumPy's sorts."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.diagnostics import CompileError
from compiler.hlo.network import passes
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from tests.support.expansions import on_machine, reference


def _text(dims: str, operands: int, attributes: str, results: int) -> str:
    shape = f"s32[{dims}]"
    result = shape if results == 1 else f"({', '.join([shape] * results)})"
    names = ", ".join(f"p{i}" for i in range(operands))
    lines = "\n".join(f"  p{i} = {shape} parameter({i})" for i in range(operands))
    call = f"  ROOT r = {result} network-sort({names}), {attributes}"
    return f"HloModule m\nENTRY e {{\n{lines}\n{call}\n}}\n"


@pytest.mark.parametrize(("rows", "lanes"), [(3, 0), (3, 2), (5, 7), (7, 0), (10, 1)])
@pytest.mark.parametrize("most", [1, 3, 5])
def test_passes_sort(rows: int, lanes: int, most: int) -> None:
    """Each pass exchanges within its bits, and all of them sort."""
    count = 1 << (rows + lanes)
    values = np.random.default_rng(rows).integers(0, 50, count)
    place = np.arange(count)
    for one in passes(rows, lanes, most):
        assert one.high - one.low <= most
        for exchange in one.exchanges:
            assert one.low <= exchange.bit < one.high or (one.is_of_lanes and exchange.bit >= rows)
            partner = place ^ (1 << exchange.bit)
            falls = place >> exchange.level & 1
            is_upper = place >> exchange.bit & 1
            low, high = np.minimum(values, values[partner]), np.maximum(values, values[partner])
            values = np.where(falls == is_upper, low, high)
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize(
    ("dims", "operands", "attributes"),
    [
        ("1,8,2048", 1, "num_keys=1, results={0}"),
        ("1,64,512", 1, "num_keys=1, results={0}"),
        ("3,128,50", 1, "num_keys=1, results={0}"),
        ("1,128,300", 1, "num_keys=1, results={1}, is_stable=true"),
        ("2,256,128", 2, "num_keys=1, results={1}, is_stable=true"),
        ("1,512,4", 3, "num_keys=2, results={0,2,1}"),
        ("1,128,384", 3, "num_keys=2, results={2,3,0}, is_stable=true"),
        ("1,128,128", 1, "num_keys=1, line_lanes=128, results={0}"),
        ("2,128,24", 1, "num_keys=1, line_lanes=8, results={0,1}, is_stable=true"),
        ("1,1024,4", 2, "num_keys=1, line_lanes=4, results={1}, is_stable=true"),
        ("1,2048,1", 2, "num_keys=1, results={0,1}, is_stable=true"),
        ("1,16,1024", 4, "num_keys=3, results={3}, is_stable=true"),
    ],
)
def test_kernels(dims: str, operands: int, attributes: str) -> None:
    rng = np.random.default_rng(0)
    shape = tuple(map(int, dims.split(",")))
    # few values, so that there are ties, which only places part; without these all but keys follow keys
    most = 40 if "is_stable" in attributes else 1 << 30
    inputs = [rng.integers(-most, most, shape).astype(np.int32) for _ in range(operands)]
    results = attributes.partition("{")[2].partition("}")[0].count(",") + 1
    text = _text(dims, operands, attributes, results)
    want = reference(text, inputs)
    got = on_machine(text, inputs)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_array_equal(a, b)


def test_ends_of_the_integers() -> None:
    ends = np.array([-(2**31), 2**31 - 1, -1, 0], np.int32)
    x = np.random.default_rng(1).choice(ends, (1, 128, 128)).astype(np.int32)
    text = _text("1,128,128", 1, "num_keys=1, line_lanes=2, results={0,1}, is_stable=true", 2)
    for a, b in zip(reference(text, [x]), on_machine(text, [x]), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("dims", "attributes", "message"),
    [
        ("1,100,128", "num_keys=1, results={0}", "1 lanes a line"),
        ("1,8,128", "num_keys=1, results={0}", "1 lanes a line"),
        ("1,128,6", "num_keys=1, line_lanes=4, results={0}", "4 lanes a line"),
        ("1,128,128", "num_keys=2, results={0}", "2 keys of 1 operands"),
        ("1,128,128", "num_keys=1, results={1}", "are not of 0 to 0"),
    ],
)
def test_refused(dims: str, attributes: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        verify(parse_module(_text(dims, 1, attributes, 1), "t.hlo"))
