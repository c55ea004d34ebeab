"""LAPACK calls of JAX's CPU lowerings, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.diagnostics import UnsupportedError
from compiler.driver import compile_module
from compiler.hlo.parser import parse_module
from tests.support.expansions import Array, expanded, on_machine
from tpu_sim.isa.chips import load_chip

PASSES = ["custom-call-expander", "linear-algebra-expander"]
GONE = ["custom-call", "cholesky", "triangular-solve"]
LETTER = {"f32": "s", "c64": "c"}


def matrix(dtype: str, *dims: int) -> Array:
    rng = np.random.default_rng(sum(dims))
    value = rng.standard_normal(dims)
    if dtype == "c64":
        return (value + 1j * rng.standard_normal(dims)).astype(np.complex64)
    return value.astype(np.float32)


def adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


def call(routine: str, operands: list[Array], shapes: list[str], config: str = "") -> str:
    kinds = {"float32": "f32", "complex64": "c64"}
    texts = [f"{kinds[str(x.dtype)]}[{','.join(map(str, x.shape))}]" for x in operands]
    lines = [f"  p{i} = {text} parameter({i})" for i, text in enumerate(texts)]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    result = f"({', '.join(shapes)})" if len(shapes) > 1 else shapes[0]
    lines.append(
        f'  ROOT r = {result} custom-call({names}), custom_call_target="lapack_{routine}_ffi", '
        f"api_version=API_VERSION_TYPED_FFI, backend_config={{{config}}}"
    )
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def results(text: str, inputs: list[Array]) -> list[Array]:
    return expanded(text, inputs, PASSES, GONE)


def close(got: Array, want: Array, tolerance: float = 2e-5) -> None:
    assert got.shape == want.shape
    assert np.max(np.abs(got - want)) <= tolerance * max(1.0, float(np.max(np.abs(want))))


@pytest.mark.parametrize("dtype", ["f32", "c64"])
def test_potrf_leaves_the_other_triangle(dtype: str) -> None:
    x = matrix(dtype, 2, 5, 5)
    x = (x @ adjoint(x) + np.eye(5)).astype(x.dtype)
    x[1] = -x[1]
    shapes = [f"{dtype}[2,5,5]", "s32[2]"]
    text = call(f"{LETTER[dtype]}potrf", [x], shapes, "uplo = 76 : ui8")
    factor, info = results(text, [x])
    close(np.tril(factor[0]), np.linalg.cholesky(x[0]))
    assert np.array_equal(np.triu(factor, 1), np.triu(x, 1))
    assert info.tolist()[0] == 0
    assert info.tolist()[1] > 0


@pytest.mark.parametrize("dims", [(2, 5, 5), (4, 6), (6, 4)])
def test_getrf(dims: tuple[int, ...]) -> None:
    x = matrix("f32", *dims)
    low, lead = min(dims[-2:]), ",".join(map(str, dims[:-2]))
    comma = "," if lead else ""
    text_dims = ",".join(map(str, dims))
    shapes = [f"f32[{text_dims}]", f"s32[{lead}{comma}{low}]", f"s32[{lead}]"]
    packed, pivots, info = results(call("sgetrf", [x], shapes), [x])
    for number in np.ndindex(*dims[:-2]):
        rows = x[number].copy()
        for i, other in enumerate(pivots[number]):
            rows[[i, other - 1]] = rows[[other - 1, i]]
        lower = np.tril(packed[number], -1)[:, :low] + np.eye(dims[-2], low)
        close(lower @ np.triu(packed[number])[:low], rows)
    assert not np.any(info)


def test_getrf_names_the_first_zero_pivot() -> None:
    x = np.zeros((3, 3), np.float32)
    x[0, 0] = 2
    _, _, info = results(call("sgetrf", [x], ["f32[3,3]", "s32[3]", "s32[]"]), [x])
    assert int(info) == 2


@pytest.mark.parametrize("dtype", ["f32", "c64"])
def test_geqrf_and_its_product(dtype: str) -> None:
    x = matrix(dtype, 6, 4)
    text = call(f"{LETTER[dtype]}geqrf", [x], [f"{dtype}[6,4]", f"{dtype}[4]"])
    packed, scales = results(text, [x])
    name = "sorgqr" if dtype == "f32" else "cungqr"
    (q,) = results(call(name, [packed, scales], [f"{dtype}[6,4]"]), [packed, scales])
    close(q @ np.triu(packed)[:4], x)
    close(adjoint(q) @ q, np.eye(4, dtype=x.dtype))


@pytest.mark.parametrize("dtype", ["f32", "c64"])
def test_eigenvalues_of_one_triangle(dtype: str) -> None:
    x = matrix(dtype, 2, 5, 5)
    whole = (np.tril(x) + adjoint(np.tril(x, -1))).astype(x.dtype)
    if dtype == "c64":
        whole.imag[:, range(5), range(5)] = 0
    name = "ssyevd" if dtype == "f32" else "cheevd"
    shapes = [f"{dtype}[2,5,5]", "f32[2,5]", "s32[2]"]
    text = call(name, [x], shapes, "mode = 86 : ui8, uplo = 76 : ui8")
    vectors, values, _ = results(text, [x])
    close(values, np.linalg.eigvalsh(whole), 1e-5)
    close(whole @ vectors, vectors * values[..., None, :], 1e-5)


@pytest.mark.parametrize("dims", [(7, 4), (4, 7), (2, 5, 5), (5, 1), (1, 3)])
@pytest.mark.parametrize(("dtype", "mode"), [("f32", "S"), ("f32", "A"), ("c64", "A")])
def test_gesdd(dtype: str, mode: str, dims: tuple[int, ...]) -> None:
    check_svd(matrix(dtype, *dims), dtype, mode)


@pytest.mark.parametrize("mode", ["S", "A"])
def test_gesdd_of_a_lower_rank(mode: str) -> None:
    x = (matrix("f32", 6, 2) @ matrix("f32", 2, 5)).astype(np.float32)
    check_svd(x, "f32", mode)
    check_svd(np.zeros((4, 3), np.float32), "f32", mode)


def svd_call(x: Array, dtype: str, mode: str) -> str:
    *lead, m, n = x.shape
    low = min(m, n)
    batch = "".join(f"{d}," for d in lead)
    left, right = (m, n) if mode == "A" else (low, low)
    shapes = [
        f"{dtype}[{batch}{m},{n}]",
        f"f32[{batch}{low}]",
        f"{dtype}[{batch}{m},{left}]",
        f"{dtype}[{batch}{right},{n}]",
        f"s32[{batch[:-1]}]",
    ]
    return call(f"{LETTER[dtype]}gesdd", [x], shapes, f"mode = {ord(mode)} : ui8")


def check_svd(x: Array, dtype: str, mode: str) -> None:
    _, s, u, v, _ = results(svd_call(x, dtype, mode), [x])
    low = s.shape[-1]
    close(s, np.linalg.svd(x, compute_uv=False), 1e-5)
    close((u[..., :low] * s[..., None, :]) @ v[..., :low, :], x, 1e-5)
    unit = np.eye(u.shape[-1], dtype=x.dtype)
    close(adjoint(u) @ u, np.broadcast_to(unit, (*x.shape[:-2], *unit.shape)), 1e-5)
    unit = np.eye(v.shape[-2], dtype=x.dtype)
    close(v @ adjoint(v), np.broadcast_to(unit, (*x.shape[:-2], *unit.shape)), 1e-5)


def test_gesdd_on_the_machine() -> None:
    x = matrix("f32", 5, 4)
    _, s, u, v, _ = on_machine(svd_call(x, "f32", "S"), [x])
    close((u * s) @ v, x, 1e-5)


def test_trsm() -> None:
    a = (matrix("c64", 4, 4) + 4 * np.eye(4)).astype(np.complex64)
    b = matrix("c64", 3, 4)
    config = "diag = 78 : ui8, side = 82 : ui8, trans_x = 67 : ui8, uplo = 85 : ui8"
    (x,) = results(call("ctrsm", [a, b], ["c64[3,4]"], config), [a, b])
    close(x @ adjoint(np.triu(a)), b)


def test_other_routines_are_refused_by_name() -> None:
    x = matrix("f32", 3, 3)
    with pytest.raises(UnsupportedError, match="'lapack_sgees_ffi' calls a library of the host"):
        results(call("sgees", [x], ["f32[3,3]", "s32[]"]), [x])


@pytest.mark.parametrize(
    "call",
    [
        'f32[4,4] custom-call(x, x, x), custom_call_target="lapack_strsm"',
        '(f32[4,4], s32[], s32[]) custom-call(x), custom_call_target="lapack_spotrf_ffi", '
        'backend_config="{uplo = 76 : ui8}"',
    ],
)
def test_other_forms_are_refused_by_name(call: str) -> None:
    text = f"HloModule m\nENTRY e {{\n x = f32[4,4] parameter(0)\n ROOT r = {call}\n}}\n"
    with pytest.raises(UnsupportedError, match=r"lapack_.* operands"):
        compile_module(parse_module(text, "t.hlo"), load_chip("v5e"))
