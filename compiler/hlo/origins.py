"""Where an instruction comes from: its ``metadata``, and that of instructions it has taken in.

An instruction that a pass makes has the metadata of the one it stands for (`rewrite.graph.emit`). One
that takes the place of others, as in common subexpression elimination or a rewrite of several
operations, keeps theirs too: ``metadata`` holds one origin, as XLA has it, and a frontend attribute the
others, so that they are in every text and XLA reads that still:

    %dot = ..., metadata={op_name="f/dot"}, frontend_attributes={also_from="{op_name=\\"f/transpose\\"}"}

What is fused has its origins in the fused computation, each on its own instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from compiler.diagnostics import CompileError, SourceSpan
from compiler.hlo.attributes import FrontendAttributes, OpMetadata
from compiler.hlo.escapes import quote, unquote
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.metadata_text import metadata_fields
from compiler.hlo.opcodes import Trait, with_any
from compiler.hlo.stack_frames import StackFrames
from tpu_sim.isa.origins import Origin

METADATA, NOTE = "metadata", "frontend_attributes"
_PLACE = frozenset({"source_file", "source_line", "stack_frame_id"})
ALSO_FROM = "also_from"
"""The frontend attribute with further origins."""
IDLE = with_any(Trait.GIVEN | Trait.TUPLE_ONLY)
"""What does nothing when a program runs."""
_MOVES = with_any(Trait.DATA_MOVEMENT)
MOST_ORIGINS = 64
"""That an instruction keeps: a constant that a thousand operations share says nothing of any."""
_ONE = re.compile(r'\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\}')


def origin_texts(instr: HloInstruction) -> tuple[str, ...]:
    """The metadata texts of an instruction, its own first."""
    own = instr.attrs.get(METADATA)
    if not isinstance(own, OpMetadata):
        return ()
    notes = instr.attrs.get(NOTE)
    return (own.text, *_others(notes)) if isinstance(notes, FrontendAttributes) else (own.text,)


def absorb(taker: HloInstruction, gone: Iterable[HloInstruction]) -> None:
    """Let an instruction say that it also comes from what those that it took in come from.

    Of an operation that computes, data movement that needs no doing any more is no part.
    """
    known = dict.fromkeys(origin_texts(taker))
    others = [i for i in gone if i.opcode not in _MOVES or taker.opcode in _MOVES or not known]
    texts = [text for instr in others for text in origin_texts(instr) if text not in known]
    if not texts:
        return
    set_origins(taker, [*known, *texts])


def set_origins(instr: HloInstruction, texts: Iterable[str]) -> None:
    """Say where an instruction comes from: metadata texts, at least one."""
    first, *others = dict.fromkeys(texts)
    instr.attrs[METADATA] = _metadata(first)
    _set_others(instr, others[: MOST_ORIGINS - 1])


_metadata = lru_cache(maxsize=16384)(OpMetadata)
"""Equal metadata are one object, as in a module that was parsed."""


def inherit(attrs: dict[str, object], near: HloInstruction) -> None:
    """Give the attributes of an instruction under construction the origins of another one."""
    if METADATA in attrs or METADATA not in near.attrs:
        return
    attrs[METADATA] = near.attrs[METADATA]
    notes = near.attrs.get(NOTE)
    others = _note(notes) if isinstance(notes, FrontendAttributes) else None
    if others is not None:
        mine = attrs.get(NOTE)
        items = mine.items if isinstance(mine, FrontendAttributes) else ()
        kept = [item for item in items if item[0] != ALSO_FROM]
        attrs[NOTE] = FrontendAttributes((*kept, (ALSO_FROM, others)))


def scoped(instr: HloInstruction, call: HloInstruction) -> None:
    """Name an instruction that was inlined as part of its call: ``f/g`` and ``add`` give ``f/g/add``.

    One without a name takes the call's origins, one without a place the call's place.
    """
    outer = call.attrs.get(METADATA)
    if not isinstance(outer, OpMetadata) or instr.opcode in IDLE:
        return
    own = instr.attrs.get(METADATA)
    if not isinstance(own, OpMetadata):
        inherit(instr.attrs, call)
        return
    instr.attrs[METADATA] = _metadata(_within(own.text, outer.text))


@lru_cache(maxsize=16384)
def _within(text: str, outer: str) -> str:
    """The metadata of an inlined instruction, of its own and the call's."""
    try:
        fields, around = metadata_fields(text), metadata_fields(outer)
        name, scope = (unquote(f.get("op_name", '""')) for f in (fields, around))
    except ValueError:
        return text
    if not fields.keys() & _PLACE:
        fields |= {key: value for key, value in around.items() if key in _PLACE}
    if scope and name != scope and not name.startswith(f"{scope}/"):
        fields["op_name"] = quote(f"{scope}/{name}" if name else scope)
    return "{" + " ".join(f"{key}={value}" for key, value in fields.items()) + "}"


def locate_by_text(module: HloModule, file: str) -> None:
    """Let operations come from their own lines of the model's text, a file of that name.

    They are named as HLO names the operation. Of a model that names any origin itself nothing changes.
    """
    instructions = [instr for computation in module.computations.values() for instr in computation]
    if any(METADATA in instr.attrs for instr in instructions):
        return
    for instr in instructions:
        if isinstance(instr.location, tuple) and instr.opcode not in IDLE:
            text, offset = instr.location
            line = text.span(offset).line
            fields = f"op_name={quote(instr.opcode)} source_file={quote(file)} source_line={line}"
            set_origins(instr, [f"{{{fields}}}"])


def _note(notes: FrontendAttributes) -> str | None:
    return next((text for key, text in notes.items if key == ALSO_FROM), None)


def _others(notes: FrontendAttributes) -> tuple[str, ...]:
    text = _note(notes)
    return () if text is None else _split(text)


@lru_cache(maxsize=16384)
def _split(text: str) -> tuple[str, ...]:
    return tuple(_ONE.findall(unquote(text))) if text.startswith('"') else ()


def _set_others(instr: HloInstruction, texts: list[str]) -> None:
    notes = instr.attrs.get(NOTE)
    items = notes.items if isinstance(notes, FrontendAttributes) else ()
    kept = [item for item in items if item[0] != ALSO_FROM]
    if texts:
        kept.append((ALSO_FROM, quote(" ".join(texts))))
    if kept:
        instr.attrs[NOTE] = FrontendAttributes(tuple(kept))


def origins_of(instr: HloInstruction) -> tuple[Origin, ...]:
    """Where an instruction itself comes from; what it calls has origins of its own (`inside`)."""
    module = instr.computation.module if instr.computation is not None else None
    frames = module.attrs.get("stack_frames") if module is not None else None
    return _named(origin_texts(instr), frames if isinstance(frames, StackFrames) else None)


@lru_cache(maxsize=16384)
def _named(texts: tuple[str, ...], tables: StackFrames | None) -> tuple[Origin, ...]:
    """The origins that metadata texts name, each once."""
    found = (_origin(text, tables) for text in texts)
    return tuple(dict.fromkeys(o for o in found if o.op_name or o.file))


@contextmanager
def origins_said(module: HloModule) -> Iterator[None]:
    """Let errors about an instruction of the module say which line of the user's program made it."""
    try:
        yield
    except CompileError as error:
        if error.span is not None:
            error.say_origin(_place_of(module, error.span))
        raise


def _place_of(module: HloModule, span: SourceSpan) -> str:
    instructions = (instr for c in module.computations.values() for instr in c)
    for instr in instructions:
        if instr.span == span:
            return said(origins_of(instr))
    return ""


def said(origins: Iterable[Origin]) -> str:
    """The first of origins that names a line; nothing if none does."""
    return next((str(origin) for origin in origins if origin.place), "")


def inside(instr: HloInstruction) -> Iterator[HloInstruction]:
    """What an instruction runs: the instructions of what it calls and of what these call, in order."""
    seen: set[HloComputation] = set()
    pending = list(reversed(instr.called_computations()))
    while pending:
        computation = pending.pop()
        if computation in seen:
            continue
        seen.add(computation)
        yield from computation
        pending += [c for i in computation for c in i.called_computations()]


@lru_cache(maxsize=16384)
def _origin(text: str, tables: StackFrames | None) -> Origin:
    try:
        fields = metadata_fields(text)
        name, file = (unquote(fields.get(key, '""')) for key in ("op_name", "source_file"))
        line, frame = (int(fields.get(key, 0)) for key in ("source_line", "stack_frame_id"))
    except ValueError:  # metadata is kept as it was written, whatever it was
        return Origin()
    if not file and tables is not None:
        file, line = tables.place(frame)
    return Origin(name, file, line)
