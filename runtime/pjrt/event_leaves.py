"""Events as native leaf functions, in LLVM IR.

An event is ``{state, references, code, message, size, waiters}``: state 1 is done, `waiters` a list of
callbacks that ends in `_CLOSED` once the event is done. Its message belongs to it.
"""

from __future__ import annotations

from runtime.pjrt.leaf_text import handle, offset

_CLOSED = 1
_MANY = 1 << 62  # so many may let go of the event that is done from the start


def events_text() -> str:
    """The IR of all that is done with events."""
    return "\n".join([_life(), _errors_of(), _set(), _on_ready(), _interface()])


def _life() -> str:
    """An event is made with two references, the maker's and the reader's, and let go of."""
    return f"""
%event = type {{ i64, i64, i64, ptr, i64, ptr }}
%waiter = type {{ ptr, ptr, ptr }}
@done = global %event {{
  i64 1, i64 {_MANY}, i64 0, ptr null, i64 0, ptr inttoptr (i64 {_CLOSED} to ptr) }}
define ptr @ready() {{
  ret ptr @done
}}
define ptr @event_new() {{
  %e = call ptr @malloc(i64 48)
  store %event {{ i64 0, i64 2, i64 0, ptr null, i64 0, ptr null }}, ptr %e
  ret ptr %e
}}
define i64 @event_is_done(ptr %e) {{
  %s = load atomic i64, ptr %e acquire, align 8
  ret i64 %s
}}
define void @event_drop(ptr %e) {{
  %r = getelementptr %event, ptr %e, i64 0, i32 1
  %before = atomicrmw sub ptr %r, i64 1 acq_rel
  %last = icmp eq i64 %before, 1
  br i1 %last, label %go, label %out
go:
  %mp = getelementptr %event, ptr %e, i64 0, i32 3
  %m = load ptr, ptr %mp
  call void @free(ptr %m)
  call void @free(ptr %e)
  br label %out
out:
  ret void
}}"""


def _errors_of() -> str:
    """What it failed with, as an error for whoever asks."""
    return """
define ptr @event_error(ptr %e) {
  %cp = getelementptr %event, ptr %e, i64 0, i32 2
  %code = load i64, ptr %cp
  %fine = icmp eq i64 %code, 0
  br i1 %fine, label %none, label %some
none:
  ret ptr null
some:
  %mp = getelementptr %event, ptr %e, i64 0, i32 3
  %m = load ptr, ptr %mp
  %np = getelementptr %event, ptr %e, i64 0, i32 4
  %n = load i64, ptr %np
  %error = call ptr @error_new(i64 %code, ptr %m, i64 %n)
  ret ptr %error
}
define void @event_tell(ptr %e, ptr %callback, ptr %user) {
  %error = call ptr @event_error(ptr %e)
  call void %callback(ptr %error, ptr %user)
  ret void
}"""


def _set() -> str:
    """It is done: the waiters are taken at once, and told."""
    return f"""
define ptr @event_set(ptr %e, i64 %code, ptr %text, i64 %size) {{
entry:
  %fine = icmp eq i64 %code, 0
  br i1 %fine, label %close, label %failed
failed:
  %m = call ptr @malloc(i64 %size)
  %c = call ptr @memcpy(ptr %m, ptr %text, i64 %size)
  %cp = getelementptr %event, ptr %e, i64 0, i32 2
  store i64 %code, ptr %cp
  %mp = getelementptr %event, ptr %e, i64 0, i32 3
  store ptr %m, ptr %mp
  %np = getelementptr %event, ptr %e, i64 0, i32 4
  store i64 %size, ptr %np
  br label %close
close:
  store atomic i64 1, ptr %e release, align 8
  %wp = getelementptr %event, ptr %e, i64 0, i32 5
  %all = atomicrmw xchg ptr %wp, ptr inttoptr (i64 {_CLOSED} to ptr) acq_rel
  br label %next
next:
  %w = phi ptr [%all, %close], [%after, %tell]
  %end = icmp eq ptr %w, null
  br i1 %end, label %out, label %tell
tell:
  %after = load ptr, ptr %w
  %fp = getelementptr %waiter, ptr %w, i64 0, i32 1
  %f = load ptr, ptr %fp
  %up = getelementptr %waiter, ptr %w, i64 0, i32 2
  %u = load ptr, ptr %up
  call void @free(ptr %w)
  call void @event_tell(ptr %e, ptr %f, ptr %u)
  br label %next
out:
  call void @event_drop(ptr %e)
  ret ptr null
}}"""


def _on_ready() -> str:
    """A callback waits, or is told now if the event is done meanwhile."""
    return f"""
define ptr @Event_OnReady(ptr %a) {{
entry:
{handle("Event_OnReady", "event")}
  %fp = getelementptr i8, ptr %a, i64 {offset("Event_OnReady", "callback")}
  %f = load ptr, ptr %fp
  %up = getelementptr i8, ptr %a, i64 {offset("Event_OnReady", "user_arg")}
  %u = load ptr, ptr %up
  %wp = getelementptr %event, ptr %h, i64 0, i32 5
  %first = load atomic ptr, ptr %wp acquire, align 8
  %closed = icmp eq ptr %first, inttoptr (i64 {_CLOSED} to ptr)
  br i1 %closed, label %now, label %wait
wait:
  %w = call ptr @malloc(i64 24)
  %wf = getelementptr %waiter, ptr %w, i64 0, i32 1
  store ptr %f, ptr %wf
  %wu = getelementptr %waiter, ptr %w, i64 0, i32 2
  store ptr %u, ptr %wu
  br label %again
again:
  %old = phi ptr [%first, %wait], [%seen, %retry]
  store ptr %old, ptr %w
  %pair = cmpxchg ptr %wp, ptr %old, ptr %w acq_rel acquire
  %seen = extractvalue {{ptr, i1}} %pair, 0
  %ok = extractvalue {{ptr, i1}} %pair, 1
  br i1 %ok, label %out, label %retry
retry:
  %late = icmp eq ptr %seen, inttoptr (i64 {_CLOSED} to ptr)
  br i1 %late, label %drop, label %again
drop:
  call void @free(ptr %w)
  br label %now
now:
  call void @event_tell(ptr %h, ptr %f, ptr %u)
  br label %out
out:
  ret ptr null
}}"""


def _interface() -> str:
    """What PJRT asks of an event."""
    return f"""
define ptr @Event_Error(ptr %a) {{
{handle("Event_Error", "event")}
  %error = call ptr @event_error(ptr %h)
  ret ptr %error
}}
define ptr @Event_IsReady(ptr %a) {{
{handle("Event_IsReady", "event")}
  %s = load atomic i64, ptr %h acquire, align 8
  %b = trunc i64 %s to i8
  %d = getelementptr i8, ptr %a, i64 {offset("Event_IsReady", "is_ready")}
  store i8 %b, ptr %d
  ret ptr null
}}
define ptr @Event_Destroy(ptr %a) {{
{handle("Event_Destroy", "event")}
  %none = icmp eq ptr %h, null
  br i1 %none, label %out, label %go
go:
  call void @event_drop(ptr %h)
  br label %out
out:
  ret ptr null
}}"""
