"""Native leaf functions of the plug-in, as LLVM IR: getters, what destroys and deletes, errors, events.

JAX lets go of buffers, events and programs wherever Python drops the last reference, also while an
exception is on its way: Python code must not run there, and an error returned ends the process. So these
functions are native and take no lock. What Python has to let go of is pushed onto a list, which
Python empties when it comes by (`runtime.pjrt.native.drain`): at its next call of us, or when its main
thread next looks (`Py_AddPendingCall`).
"""

from __future__ import annotations

from typing import Any

from runtime.pjrt.blocks import (
    GETTERS,
    HOME,
    LINK,
    REFERENCES,
    SLOTS,
    VALUE_LINK,
    Getter,
    slot_count,
)
from runtime.pjrt.event_leaves import events_text
from runtime.pjrt.layouts import FUNCTIONS, ErrorCode, structure
from runtime.pjrt.leaf_text import handle, offset
from runtime.pjrt.quick_leaf import quick_leaf_text
from runtime.pjrt.reading import READ, read_quickly
from tpu_sim.jit.emitter import TARGET_ATTRIBUTES

_WIDTHS = {1: "i8", 4: "i32", 8: "i64"}
_UNTOUCHED = 1
_INTERRUPTED = "interrupted"
NATIVE = (
    *(getter.function for getter in GETTERS),
    "Error_Destroy", "Event_Destroy", "Event_Error", "Event_IsReady", "Event_OnReady",
    "Buffer_Destroy", "Buffer_Delete", "Executable_Destroy", "LoadedExecutable_Destroy",
    "LoadedExecutable_GetExecutable", "CopyToDeviceStream_Destroy", "callback_error",
)  # fmt: skip
"""The functions of the interface that are native, and one that PJRT calls from elsewhere: it makes an error
for a callback. The others here are for `runtime.pjrt.native`."""


def leaves_text() -> str:
    """The IR of all leaf functions, and of what calls the Python ones."""
    parts = [
        _LISTS,
        _next_given_up(),
        _PENDING,
        _errors(),
        events_text(),
        _callers(),
        quick_leaf_text(),
        read_quickly.text(),
        TARGET_ATTRIBUTES,
    ]
    parts += [_getter(getter) for getter in GETTERS]
    parts += [_releaser("Buffer_Destroy", "buffer"), _deleter()]
    parts += [
        _releaser(f"{name}_Destroy", "executable") for name in ("Executable", "LoadedExecutable")
    ]
    parts += [_releaser("CopyToDeviceStream_Destroy", "stream"), _get_executable()]
    return "\n".join(parts)


def caller(number: int) -> str:
    """The name of the native function that calls Python function `number`."""
    return f"call_{number}"


def _callers() -> str:
    """One for each function of the interface: it calls Python with the arguments and a place for the error.

    A signal's handler may raise where Python enters the function, before anything there could catch it:
    the place then still holds `_UNTOUCHED`, and the call was interrupted.
    """
    count, size = len(FUNCTIONS), len(_INTERRUPTED)
    parts = [
        f"@callbacks = global [{count} x ptr] zeroinitializer\n"
        f'@interrupted = constant [{size} x i8] c"{_INTERRUPTED}"\n'
        "define ptr @set_callback(i64 %number, ptr %f) {\n"
        f"  %p = getelementptr [{count} x ptr], ptr @callbacks, i64 0, i64 %number\n"
        "  store ptr %f, ptr %p\n  ret ptr null\n}"
    ]
    for number, name in enumerate(FUNCTIONS):
        parts.append(f"""define ptr @{caller(number)}(ptr %a) {{
  %place = alloca i64
{_FIRST_ASKED.get(name, "")}
  store i64 {_UNTOUCHED}, ptr %place
  %p = getelementptr [{count} x ptr], ptr @callbacks, i64 0, i64 {number}
  %f = load ptr, ptr %p
  call void %f(ptr %a, ptr %place)
  %found = load i64, ptr %place
  %lost = icmp eq i64 %found, {_UNTOUCHED}
  br i1 %lost, label %interrupted, label %out
interrupted:
  %error = call ptr @error_new(i64 {ErrorCode.CANCELLED}, ptr @interrupted, i64 {size})
  ret ptr %error
out:
  %made = inttoptr i64 %found to ptr
  ret ptr %made
}}""")
    return "\n".join(parts)


_FIRST_ASKED = {
    "Buffer_ToHostBuffer": f"""  %ready = ptrtoint ptr @done to i64
  %quick = call i64 @{READ}(ptr %a, i64 %ready)
  %is_quick = icmp ne i64 %quick, 0
  br i1 %is_quick, label %read, label %python
read:
  ret ptr null
python:"""
}
"""What native code does of a function before Python is called."""


def _getter(getter: Getter) -> str:
    arguments = structure(getter.function)
    lines = [f"define ptr @{getter.function}(ptr %a) {{", handle(getter.function, getter.handle)]
    for number, (field, slot) in enumerate(getter.fields):
        place: Any = getattr(arguments, field)
        kind = _WIDTHS[place.size]
        value = str(slot)
        if isinstance(slot, str):
            value = f"%v{number}"
            lines.append(
                f"  %s{number} = getelementptr i64, ptr %h, i64 {SLOTS[getter.kind][slot]}\n"
                f"  {value} = load {kind}, ptr %s{number}"
            )
        lines.append(
            f"  %d{number} = getelementptr i8, ptr %a, i64 {place.offset}\n"
            f"  store {kind} {value}, ptr %d{number}"
        )
    return "\n".join([*lines, "  ret ptr null", "}"])


def _releaser(function: str, field: str) -> str:
    """Count down who holds the block; the last one pushes it."""
    return f"""define ptr @{function}(ptr %a) {{
{handle(function, field)}
  %none = icmp eq ptr %h, null
  br i1 %none, label %out, label %count
count:
  %r = getelementptr i64, ptr %h, i64 {REFERENCES}
  %before = atomicrmw sub ptr %r, i64 1 acq_rel
  %last = icmp eq i64 %before, 1
  br i1 %last, label %go, label %out
go:
  %home = getelementptr i64, ptr %h, i64 {HOME}
  %stack = load i64, ptr %home
  %returns = icmp ne i64 %stack, 0
  call void @push(ptr @released, ptr %h, i64 {LINK}, i1 %returns)
  br label %out
out:
  ret ptr null
}}"""


def _deleter() -> str:
    """Whoever marks a buffer as deleted first pushes it, so that its value is given up."""
    return f"""define ptr @Buffer_Delete(ptr %a) {{
{handle("Buffer_Delete", "buffer")}
  %f = getelementptr i64, ptr %h, i64 {SLOTS["buffer"]["is_deleted"]}
  %was = atomicrmw xchg ptr %f, i64 1 acq_rel
  %new = icmp eq i64 %was, 0
  br i1 %new, label %go, label %out
go:
  call void @push(ptr @given_up, ptr %h, i64 {VALUE_LINK}, i1 false)
  br label %out
out:
  ret ptr null
}}"""


def _get_executable() -> str:
    function = "LoadedExecutable_GetExecutable"
    return f"""define ptr @{function}(ptr %a) {{
{handle(function, "loaded_executable")}
  %r = getelementptr i64, ptr %h, i64 {REFERENCES}
  %before = atomicrmw add ptr %r, i64 1 acq_rel
  %d = getelementptr i8, ptr %a, i64 {offset(function, "executable")}
  store ptr %h, ptr %d
  ret ptr null
}}"""


_LISTS = """
declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @memcpy(ptr, ptr, i64)
@released = global ptr null
@given_up = global ptr null
@add_pending_call = global ptr null
@drainer = global ptr null
define void @push(ptr %list, ptr %h, i64 %slot, i1 %waits) {
entry:
  %link = getelementptr i64, ptr %h, i64 %slot
  %first = load atomic ptr, ptr %list acquire, align 8
  br label %again
again:
  %old = phi ptr [%first, %entry], [%now, %again]
  store ptr %old, ptr %link
  %pair = cmpxchg ptr %list, ptr %old, ptr %h acq_rel acquire
  %now = extractvalue {ptr, i1} %pair, 0
  %done = extractvalue {ptr, i1} %pair, 1
  br i1 %done, label %ask, label %again
ask:
  %drainer = load atomic ptr, ptr @drainer acquire, align 8
  %off = icmp eq ptr %drainer, null
  %more = icmp ne ptr %old, null
  %asked = or i1 %off, %more
  %quiet = or i1 %asked, %waits
  br i1 %quiet, label %out, label %call
call:
  %add = load ptr, ptr @add_pending_call
  %ignored = call i32 %add(ptr %drainer, ptr null)
  br label %out
out:
  ret void
}
define ptr @take() {
  %h = atomicrmw xchg ptr @released, ptr null acq_rel
  ret ptr %h
}
"""


def _next_given_up() -> str:
    """The next buffer whose value is given up: others push meanwhile, one thread takes."""
    return f"""
define ptr @next_given_up() {{
entry:
  %first = load atomic ptr, ptr @given_up acquire, align 8
  br label %again
again:
  %h = phi ptr [%first, %entry], [%now, %take]
  %none = icmp eq ptr %h, null
  br i1 %none, label %out, label %take
take:
  %link = getelementptr i64, ptr %h, i64 {VALUE_LINK}
  %following = load ptr, ptr %link
  %pair = cmpxchg ptr @given_up, ptr %h, ptr %following acq_rel acquire
  %now = extractvalue {{ptr, i1}} %pair, 0
  %done = extractvalue {{ptr, i1}} %pair, 1
  br i1 %done, label %out, label %again
out:
  ret ptr %h
}}"""


_PENDING = """
@python_drainer = global ptr null
@set_error = global ptr null
@let_go = global ptr null
define i32 @pending(ptr %ignored) {
  %place = alloca [2 x ptr]
  store [2 x ptr] zeroinitializer, ptr %place
  %f = load ptr, ptr @python_drainer
  call void %f(ptr %place)
  %kind = load ptr, ptr %place
  %fine = icmp eq ptr %kind, null
  br i1 %fine, label %out, label %failed
failed:
  %second = getelementptr ptr, ptr %place, i64 1
  %raised = load ptr, ptr %second
  %fail = load ptr, ptr @set_error
  call void %fail(ptr %kind, ptr %raised)
  %let_go = load ptr, ptr @let_go
  call void %let_go(ptr %raised)
  ret i32 -1
out:
  ret i32 0
}
define ptr @set_drainer(ptr %add, ptr %fail, ptr %let_go, ptr %f) {
  store ptr %add, ptr @add_pending_call
  store ptr %fail, ptr @set_error
  store ptr %let_go, ptr @let_go
  store ptr %f, ptr @python_drainer
  %off = icmp eq ptr %f, null
  %drainer = select i1 %off, ptr null, ptr @pending
  store atomic ptr %drainer, ptr @drainer release, align 8
  ret ptr null
}"""
"""What the interpreter calls between two steps of Python: what draining raised is raised there."""


def _errors() -> str:
    slots = SLOTS["error"]
    return f"""
define ptr @error_new(i64 %code, ptr %text, i64 %size) {{
  %h = call ptr @malloc(i64 {8 * slot_count("error")})
  %room = add i64 %size, 1
  %m = call ptr @malloc(i64 %room)
  %c = call ptr @memcpy(ptr %m, ptr %text, i64 %size)
  %end = getelementptr i8, ptr %m, i64 %size
  store i8 0, ptr %end
  %p0 = getelementptr i64, ptr %h, i64 {slots["message"]}
  store ptr %m, ptr %p0
  %p1 = getelementptr i64, ptr %h, i64 {slots["message_size"]}
  store i64 %size, ptr %p1
  %p2 = getelementptr i64, ptr %h, i64 {slots["code"]}
  store i64 %code, ptr %p2
  ret ptr %h
}}
define ptr @callback_error(i32 %code, ptr %text, i64 %size) {{
  %wide = sext i32 %code to i64
  %error = call ptr @error_new(i64 %wide, ptr %text, i64 %size)
  ret ptr %error
}}
define ptr @Error_Destroy(ptr %a) {{
{handle("Error_Destroy", "error")}
  %none = icmp eq ptr %h, null
  br i1 %none, label %out, label %go
go:
  %p = getelementptr i64, ptr %h, i64 {slots["message"]}
  %m = load ptr, ptr %p
  call void @free(ptr %m)
  call void @free(ptr %h)
  br label %out
out:
  ret ptr null
}}"""
