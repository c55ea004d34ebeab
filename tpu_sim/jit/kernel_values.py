"""Values of the kernel language as LLVM IR, and what it emits for `tpu_sim.jit.kernel_builtins`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tpu_sim.jit import kernel_builtins as builtins
from tpu_sim.jit.emitter import FunctionEmitter


@dataclass(frozen=True, slots=True)
class Ssa:
    """A value in the IR: its name, and i64, i1, ptr (words, functions) or ptr32 (half-words)."""

    name: str
    kind: str


Value = int | Ssa | tuple[Any, ...]
"""A number that is known here and now, one that is known when the kernel runs, or several."""


def llvm_type(kind: str) -> str:
    """The type of a kind of value."""
    return "ptr" if kind == "ptr32" else kind


def text_of(value: object) -> str:
    """A value as an operand."""
    if isinstance(value, bool):
        return "true" if value else "false"
    assert isinstance(value, int | Ssa), "a tuple is no value of the IR"
    return value.name if isinstance(value, Ssa) else str(value)


def kind_of(value: Value) -> str:
    """The kind of a value."""
    return value.kind if isinstance(value, Ssa) else "i64"


def element(e: FunctionEmitter, base: Ssa, index: Value) -> Ssa:
    """Where an element of an array of words or half-words lies."""
    width = "i32" if base.kind == "ptr32" else "i64"
    text = f"getelementptr {width}, ptr {base.name}, i64 {text_of(index)}"
    return Ssa(e.value(text), base.kind)


def native_call(
    e: FunctionEmitter, function: str, result: str, arguments: Iterable[tuple[str, Value]]
) -> Value:
    """A call of native code; a result of 32 bits is signed."""
    typed = ", ".join(
        f"{kind} {_pointer(e, value) if kind == 'ptr' else text_of(value)}"
        for kind, value in arguments
    )
    text = f"call {result} {function}({typed})"
    if result == "void":
        e.do(text)
        return 0
    found = e.value(text)
    if result == "i32":
        return Ssa(e.value(f"sext i32 {found} to i64"), "i64")
    return Ssa(found, result)


def _at(e: FunctionEmitter, result: str, function: Value, *arguments: Value) -> Value:
    pointers = [("ptr", value) for value in arguments]
    return native_call(e, _pointer(e, function), result, pointers)


def _pointer(e: FunctionEmitter, value: Value) -> str:
    if isinstance(value, Ssa) and value.kind == "ptr":
        return value.name
    return e.value(f"inttoptr i64 {text_of(value)} to ptr")


def _word(e: FunctionEmitter, base: Value, index: Value) -> str:
    assert isinstance(base, Ssa)
    return element(e, base, index).name


def _address_of(e: FunctionEmitter, value: Value) -> Value:
    return Ssa(e.value(f"ptrtoint ptr {text_of(value)} to i64"), "i64")


def _local_words(e: FunctionEmitter, count: Value) -> Value:
    return Ssa(e.value(f"alloca i64, i64 {text_of(count)}, align 64"), "ptr")


def _copy_bytes(e: FunctionEmitter, target: Value, source: Value, count: Value) -> Value:
    sides = f"ptr {_pointer(e, target)}, ptr {_pointer(e, source)}"
    e.do(f"call void @llvm.memcpy.p0.p0.i64({sides}, i64 {text_of(count)}, i1 false)")
    return 0


def _atomic(e: FunctionEmitter, operation: str, base: Value, index: Value, value: Value) -> Value:
    place = _word(e, base, index)
    e.do(f"atomicrmw {operation} ptr {place}, i64 {text_of(value)} seq_cst")
    return 0


def _load_acquire(e: FunctionEmitter, base: Value, index: Value) -> Value:
    place = _word(e, base, index)
    return Ssa(e.value(f"load atomic i64, ptr {place} acquire, align 8"), "i64")


def _store_release(e: FunctionEmitter, base: Value, index: Value, value: Value) -> Value:
    place = _word(e, base, index)
    e.do(f"store atomic i64 {text_of(value)}, ptr {place} release, align 8")
    return 0


def _compare_and_swap(
    e: FunctionEmitter, base: Value, index: Value, old: Value, new: Value
) -> Value:
    words = f"i64 {text_of(old)}, i64 {text_of(new)}"
    swap = e.value(f"cmpxchg ptr {_word(e, base, index)}, {words} acq_rel acquire, align 8")
    return Ssa(e.value(f"extractvalue {{ i64, i1 }} {swap}, 1"), "i1")


BUILTINS: dict[Any, Callable[..., Value]] = {
    builtins.words_at: lambda e, address: Ssa(_pointer(e, address), "ptr"),
    builtins.address_of: _address_of,
    builtins.local_words: _local_words,
    builtins.copy_bytes: _copy_bytes,
    builtins.atomic_add: lambda e, *values: _atomic(e, "add", *values),
    builtins.atomic_max: lambda e, *values: _atomic(e, "max", *values),
    builtins.load_acquire: _load_acquire,
    builtins.store_release: _store_release,
    builtins.compare_and_swap: _compare_and_swap,
    builtins.call_at: lambda e, *values: _at(e, "void", *values),
    builtins.status_at: lambda e, *values: _at(e, "i32", *values),
}
"""By function, what emits its code: of the emitter and the values of the arguments."""
