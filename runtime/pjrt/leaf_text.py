"""What the IR text of native functions of the interface has in common: reading their arguments, `%a`."""

from __future__ import annotations

from runtime.pjrt.layouts import structure


def offset(function: str, field: str) -> int:
    """Where a field of a function's arguments lies, in bytes."""
    found: int = getattr(structure(function), field).offset
    return found


def handle(function: str, field: str) -> str:
    """`%h` is what that field of the arguments `%a` says."""
    return (
        f"  %hp = getelementptr i8, ptr %a, i64 {offset(function, field)}\n  %h = load ptr, ptr %hp"
    )
