"""Modules cut into parts: linked together they are the module."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tpu_sim.jit import engine as engine_module
from tpu_sim.jit import object_compiler
from tpu_sim.jit.emitter import TUNED
from tpu_sim.jit.engine import Engine, NativeModule, detect_host
from tpu_sim.jit.object_compiler import pack_objects, unpack_objects
from tpu_sim.machine.disk_cache import DiskCache

_STEPS = 40


def _chain() -> list[str]:
    """f0(x) = x + 1, fN(x) = f(N-1)(x) * 3 + table[N % 4], and a pointer to one of them."""
    functions = [
        "define i32 @f0(i32 %x) noinline #0 {\nentry:\n %y = add i32 %x, 1\n ret i32 %y\n}\n"
    ]
    for n in range(1, _STEPS):
        functions.append(
            f"@table{n} = internal constant [4 x i32] [i32 5, i32 6, i32 7, i32 8]\n"
            f"define i32 @f{n}(i32 %x) #0 {{\nentry:\n %a = call i32 @f{n - 1}(i32 %x)\n"
            f" %b = mul i32 %a, 3\n"
            f" %p = getelementptr [4 x i32], ptr @table{n}, i64 0, i64 {n % 4}\n"
            " %t = load i32, ptr %p\n %c = add i32 %b, %t\n ret i32 %c\n}\n"
        )
    last = (
        "define i32 @last(i32 %x) #0 {\nentry:\n %slot = alloca ptr\n"
        f" store ptr @f{_STEPS - 1}, ptr %slot\n %f = load ptr, ptr %slot\n"
        " %y = call i32 %f(i32 %x)\n ret i32 %y\n}\n"
    )
    return [*functions, last]


def _expected(x: int) -> int:
    value = x + 1
    for n in range(1, _STEPS):
        value = (value * 3 + 5 + n % 4) % 2**32
    return value


def _last(module: NativeModule, x: int) -> int:
    function = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)(module.address("last"))
    return int(function(x))


@pytest.mark.parametrize(("part_bytes", "count"), [(1 << 20, 1), (3000, 4), (1, _STEPS + 1)])
def test_parts_linked_together_are_the_module(
    monkeypatch: pytest.MonkeyPatch, part_bytes: int, count: int
) -> None:
    monkeypatch.setattr(object_compiler, "_PART_BYTES", part_bytes)
    engine = Engine(detect_host(), None)
    code = engine.object_code(*_chain())
    assert len(unpack_objects(code)) == count
    module = engine.link(code)
    assert [_last(module, x) for x in (0, 7)] == [_expected(0), _expected(7)]


def test_a_long_module_is_compiled_in_parts() -> None:
    engine = Engine(detect_host(), None)
    first, *others = _chain()
    code = engine.object_code(first + "; padding\n" * 100_000, *others)
    assert len(unpack_objects(code)) > 1
    assert _last(engine.link(code), 3) == _expected(3)


def test_tuned_functions_are_a_part_of_their_own() -> None:
    """Two levels: one keeps a loop's counter on the stack, as its code is shorter to make."""
    first, *others = _chain()
    tuned = first.replace("#0", TUNED)
    assert tuned != first
    engine = Engine(detect_host(), None)
    parts = unpack_objects(engine.object_code(tuned, *others))
    assert len(parts) == 2
    assert parts[0] == unpack_objects(Engine(detect_host(), None, 1).object_code(first))[0]
    assert _last(engine.link(engine.object_code(tuned, *others)), 3) == _expected(3)


def test_compiling_begins_before_the_last_function_is_there() -> None:
    engine = Engine(detect_host(), None)
    with engine.compiler("") as compiler, pytest.raises(RuntimeError, match="parsing error"):
        compiler.add("define nonsense" + " " * (1 << 20))
        compiler._parts[0].result()


def test_modules_with_equal_names_do_not_meet() -> None:
    engine = Engine(detect_host(), None)
    first, second = (
        engine.link(engine.object_code(f"define i32 @last(i32 %x) #0 {{\n ret i32 {n}\n}}\n"))
        for n in (1, 2)
    )
    assert (_last(first, 0), _last(second, 0)) == (1, 2)


def test_packed_objects_come_back() -> None:
    objects = [b"one", b"", b"three"]
    packed = pack_objects(objects)
    assert unpack_objects(packed) == objects
    with pytest.raises(ValueError, match="cut off"):
        unpack_objects(packed[:-1])


def test_text_that_is_no_ir_is_refused() -> None:
    with pytest.raises(RuntimeError, match="parsing error"):
        Engine(detect_host(), None).object_code("define nonsense")


def test_code_of_our_own_is_found_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "is_source_as_loaded", lambda *_: True)
    engine = Engine(detect_host(), DiskCache(tmp_path))
    made: list[str] = []

    def make_text() -> str:
        made.append("define i32 @answer() {\n ret i32 42\n}\n")
        return made[-1]

    codes = [engine.own_code("test", make_text) for _ in range(2)]
    assert codes[0] == codes[1] and len(made) == 1
    assert engine.own_code("another", make_text) and len(made) == 2
    assert Engine(detect_host(), None).own_code("test", make_text) and len(made) == 3
