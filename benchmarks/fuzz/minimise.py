"""A failing module made small: outputs dropped, instructions made parameters, dimensions shrunk.

Every step is tried and kept when the module still fails in the same way; invalid modules do not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks.fuzz import scale, sharded
from benchmarks.fuzz.check import Ways
from benchmarks.fuzz.module_text import (
    Computation,
    Line,
    Text,
    cleaned,
    elements,
    plain,
    read,
    used_names,
)
from benchmarks.fuzz.worker import limited
from benchmarks.fuzz.xla_process import XlaProcess

SECONDS = 60.0
Fails = Callable[[str], bool]


def minimise(
    text: str,
    kind: str,
    signature: str,
    seed: int,
    use_xla: bool,
    target: str = "v5e",
    seconds: float = SECONDS,
) -> str:
    """The smallest module found that fails in this way."""
    if kind in ("crash", "hang"):
        return reduced(text, lambda t: _dies(t, seed, kind, target), seconds)
    xla = XlaProcess() if use_xla and kind not in ("internal", "refused", "machines") else None
    ways = Ways(
        xla,
        60_000 if kind == "machines" else 0,
        kind == "printing",
        target,
        stablehlo=kind == "frontends",
    )

    def fails(candidate: str) -> bool:
        outcome = limited(candidate, ways, seed)
        return outcome.kind == kind and (not signature or outcome.signature == signature)

    try:
        return reduced(text, fails, seconds)
    finally:
        if xla is not None:
            xla.close()


def minimise_real(text: str, kind: str, signature: str, seconds: float = SECONDS) -> str:
    """As `minimise`, for a module of real size that does not compile."""

    def fails(candidate: str) -> bool:
        outcome = scale.limited(candidate)
        return outcome.kind == kind and outcome.signature == signature

    return reduced(text, fails, seconds)


def minimise_sharded(
    text: str, kind: str, signature: str, seed: int, seconds: float = SECONDS
) -> str:
    """As `minimise`, for an annotated module of several partitions."""

    def fails(candidate: str) -> bool:
        outcome = sharded.limited(sharded.check_annotated, candidate, seed)
        return outcome.kind == kind and outcome.signature == signature

    return reduced(text, fails, seconds)


def _dies(text: str, seed: int, kind: str, target: str) -> bool:
    """Whether a process that judges the module dies of a signal, or does not end."""
    with tempfile.NamedTemporaryFile("w", suffix=".hlo", delete=False) as file:
        file.write(f"// seed {seed}: {kind}\n{text}")
    command = [sys.executable, "-m", "benchmarks.fuzz", "--no-xla", "--target", target]
    command += ["--file", file.name]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=False, text=True)
    except subprocess.TimeoutExpired:
        return kind == "hang"
    finally:
        os.unlink(file.name)
    return done.returncode < 0 if kind == "crash" else ": hang:" in done.stdout


def reduced(text: str, fails: Fails, seconds: float) -> str:
    """Steps of all sorts until none helps or time is up."""
    starts = (cleaned(read(form)) for form in (text, plain(text)))
    best = next((start for start in reversed(list(starts)) if fails(start.render())), None)
    if best is None:
        return text
    deadline = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < deadline:
        changed = False
        for steps in _STEPS:
            again = True
            while again and time.monotonic() < deadline:
                again = False
                size = len(best.render())
                for candidate in steps(best):
                    if time.monotonic() > deadline:
                        break
                    small = _cleaned(candidate)
                    if small is None or small == best:
                        continue
                    rendered = small.render()
                    shrinks = len(rendered) < size or steps in _MAY_GROW
                    if shrinks and _score(small) < _score(best) and fails(rendered):
                        best, changed, again = small, True, True
                        break
    return best.render()


def _cleaned(text: Text) -> Text | None:
    try:
        return cleaned(text)
    except (KeyError, IndexError, StopIteration, ValueError):
        return None


def _score(text: Text) -> tuple[int, int, int]:
    """Instructions other than leaves count most, then all, then the numbers in shapes."""
    lines = [line for c in text.computations for line in c.lines]
    leaves = ("parameter", "constant", "get-tuple-element", "tuple")
    numbers = sum(int(n) for line in lines for n in re.findall(r"\d+", line.shape))
    return sum(line.opcode not in leaves for line in lines), len(lines), numbers


# Steps.


def _outputs(text: Text) -> Iterator[Text]:
    """Half of the results, one of them, or an instruction in the middle as the only result."""
    entry = text.entry
    root = entry.line(entry.root)
    if root.opcode == "tuple" and len(root.operands) > 1:
        half = len(root.operands) // 2
        choices = [root.operands[:half], root.operands[half:]]
        choices += [(name,) for name in root.operands]
        choices += [root.operands[:i] + root.operands[i + 1 :] for i in range(len(root.operands))]
        for names in choices:
            yield _with_results(text, names)
    for line in reversed(entry.lines[:-1]):
        if not line.shape.startswith(("(", "token")) and line.opcode != "parameter":
            yield _with_results(text, (line.name,))


def _with_results(text: Text, names: tuple[str, ...]) -> Text:
    entry = text.entry
    shapes = ", ".join(entry.line(name).shape for name in names)
    root = Line("result", f"({shapes})", "tuple", names, "")
    lines = [line for line in entry.lines if line.name != "result"]
    lines = [line for line in lines if line.name != entry.root or line.opcode != "tuple"]
    return text.with_computation(Computation(entry.name, (*lines, root), "result"))


def _to_parameters(text: Text) -> Iterator[Text]:
    """An instruction of the entry becomes an input."""
    entry = text.entry
    for line in reversed(entry.lines):
        if line.opcode in ("parameter", "constant") or line.name == entry.root:
            continue
        if line.shape.startswith("token"):
            continue
        is_integer = re.match(r"\(?[su]\d", line.shape)
        for kind in ("small", "index", "any") if is_integer else ("tame", "whole", "any"):
            stem = line.name.split("_")[0]
            parameter = Line(f"{stem}_{kind}", line.shape, "parameter", ("0",), "")
            renamed = _renamed(entry, line.name, parameter.name)
            lines = [parameter if x.name == line.name else x for x in renamed.lines]
            yield text.with_computation(renamed.with_lines(lines))


def _renamed(computation: Computation, old: str, new: str) -> Computation:
    lines = [_with_operand(line, old, new) for line in computation.lines]
    root = new if computation.root == old else computation.root
    return Computation(computation.name, tuple(lines), root)


def _with_operand(line: Line, old: str, new: str) -> Line:
    if old not in used_names(line):
        return line
    attributes = re.sub(rf"(?<=[{{, ]){re.escape(old)}(?=[}},])", new, line.attributes)
    return replace(
        line, operands=tuple(new if o == old else o for o in line.operands), attributes=attributes
    )


def _skipped(text: Text) -> Iterator[Text]:
    """An instruction is replaced by an operand, or anything before it, of its shape."""
    kept = _combiners(text)
    for computation in reversed(text.computations):
        if computation.name in kept:
            continue
        for at, line in reversed(list(enumerate(computation.lines))):
            if line.opcode in ("parameter", "constant"):
                continue
            before = computation.lines[:at]
            same = [x.name for x in before if x.shape == line.shape]
            same.sort(key=lambda name: name not in line.operands)
            for name in same[:3]:
                changed = _renamed(computation, line.name, name)
                lines = [x for x in changed.lines if x.name != line.name]
                yield text.with_computation(changed.with_lines(lines))


_COMBINES = re.compile(r"(?:select|scatter|to_apply)=([\w.]+)")


def _combiners(text: Text) -> set[str]:
    """Computations of scalars that must stay what they are: no first-of-two as a sum."""
    return {
        name
        for c in text.computations
        for line in c.lines
        if line.opcode != "call"
        for name in _COMBINES.findall(line.attributes)
    }


def _to_constants(text: Text) -> Iterator[Text]:
    """An instruction of an inner computation becomes a constant."""
    kept = _combiners(text)
    for computation in text.computations[:-1]:
        if computation.name in kept:
            continue
        for line in computation.lines:
            if line.opcode in ("parameter", "constant", "tuple") or line.shape.startswith("("):
                continue
            words = {"pred": "true", "c64": "(1, 0)"}
            dtype, _, rest = line.shape.partition("[")
            if rest.startswith("]"):
                made = [Line(line.name, line.shape, "constant", (words.get(dtype, "1"),), "")]
            else:
                one = Line(
                    line.name + "one", f"{dtype}[]", "constant", (words.get(dtype, "1"),), ""
                )
                spread = Line(line.name, line.shape, "broadcast", (one.name,), ", dimensions={}")
                made = [one, spread]
                if line.opcode == "broadcast":
                    continue
            lines = [y for x in computation.lines for y in (made if x is line else [x])]
            yield text.with_computation(computation.with_lines(lines))


def _without_attributes(text: Text) -> Iterator[Text]:
    """Control edges and aliases go."""
    if text.header != "HloModule m":
        yield replace(text, header="HloModule m")
    for computation in text.computations:
        for line in computation.lines:
            plain = re.sub(
                r", (control-predecessors|operand_precision)=\{[^}]*\}", "", line.attributes
            )
            if plain != line.attributes:
                lines = [
                    replace(x, attributes=plain) if x is line else x for x in computation.lines
                ]
                yield text.with_computation(computation.with_lines(lines))


def _inlined(text: Text) -> Iterator[Text]:
    """A call, fusion or branch is replaced by its body."""
    by_name = {c.name: c for c in text.computations}
    for computation in reversed(text.computations):
        for line in computation.lines:
            if line.opcode not in ("call", "fusion", "conditional"):
                continue
            for number, name in enumerate(line.called()):
                operands = line.operands
                if line.opcode == "conditional":
                    operands = (line.operands[1 + number],)
                yield text.with_computation(_with_body(computation, line, by_name[name], operands))


def _with_body(
    computation: Computation, line: Line, body: Computation, operands: tuple[str, ...]
) -> Computation:
    names = {x.name: f"{line.name}.{x.name}" for x in body.lines}
    for x in body.lines:
        if x.opcode == "parameter":
            names[x.name] = operands[int(x.operands[0])]
    copied = []
    for x in body.lines:
        if x.opcode != "parameter":
            y = replace(x, name=names[x.name])
            for old in used_names(x):
                y = _with_operand(y, old, names[old])
            copied.append(y)
    lines = [y for x in computation.lines for y in (copied if x is line else [x])]
    whole = computation.with_lines(lines)
    return _renamed(whole, line.name, names[body.root])


def _narrower_states(text: Text) -> Iterator[Text]:
    """One element of a loop's state goes."""
    for computation in text.computations:
        for line in computation.lines:
            if line.opcode == "while":
                for index in reversed(range(len(elements(line.shape)))):
                    made = _without_element(text, computation, line, index)
                    if made is not None:
                        yield made


def _without_element(text: Text, where: Computation, loop: Line, index: int) -> Text | None:
    """The state of a loop without one element, which nothing but the body's root may need."""
    shapes = elements(loop.shape)
    shape = f"({', '.join(shapes[:index] + shapes[index + 1 :])})"
    state = where.line(loop.operands[0])
    if state.opcode != "tuple" or len(shapes) < 2:
        return None

    def narrowed(c: Computation, of: set[str], tuples: set[str]) -> Computation | None:
        lines = []
        for x in c.lines:
            if x.name in tuples:
                kept = x.operands[:index] + x.operands[index + 1 :]
                x = replace(x, operands=kept, shape=shape)
            elif x.name in of:
                x = replace(x, shape=shape)
            elif x.opcode == "get-tuple-element" and x.operands[0] in of:
                at = int(re.findall(r"index=(\d+)", x.attributes)[0])
                if at == index:
                    return None
                if at > index:
                    x = replace(x, attributes=f", index={at - 1}")
            elif of & used_names(x):
                return None
            lines.append(x)
        return c.with_lines(lines)

    result = text
    for name in loop.called():
        callee = next(c for c in text.computations if c.name == name)
        callers = sum(name in x.called() for c in text.computations for x in c.lines)
        root = callee.line(callee.root)
        is_body = root.shape.startswith("(")
        if callers > 1 or (is_body and root.opcode != "tuple"):
            return None
        lean = callee
        if is_body:  # the element may be read for itself alone
            operands = (*root.operands[:index], root.operands[index], *root.operands[index + 1 :])
            reads = {
                x.name for x in callee.lines
                if x.opcode == "get-tuple-element" and f"index={index}" == x.attributes.strip(", ")
            }  # fmt: skip
            users = [x for x in callee.lines if reads & set(x.operands) and x is not root]
            if users or any(o in reads for i, o in enumerate(operands) if i != index):
                return None
            lean = callee.with_lines([x for x in callee.lines if x.name not in reads])
        else:
            unused = {o for x in callee.lines for o in x.operands} | {callee.root}
            lean = callee.with_lines(
                [x for x in callee.lines if x.name in unused or x.opcode == "parameter"]
            )
        parameter = next(x.name for x in lean.lines if x.opcode == "parameter")
        made = narrowed(lean, {parameter}, {root.name} if is_body else set())
        if made is None:
            return None
        result = result.with_computation(made)
    fresh = replace(state, name=f"{state.name}.{index}")
    loop_line = replace(loop, operands=(fresh.name,), shape=shape)
    lines = []
    for x in where.lines:
        if x is state:
            kept = fresh.operands[:index] + fresh.operands[index + 1 :]
            lines += [state, replace(fresh, operands=kept, shape=shape)]
        else:
            lines.append(loop_line if x is loop else x)
    made = narrowed(where.with_lines(lines), {loop.name}, set())
    return None if made is None else result.with_computation(made)


def _smaller_dims(text: Text) -> Iterator[Text]:
    """One size, everywhere it is written, becomes a smaller one."""
    rendered = text.render()
    sizes = sorted({int(n) for s in re.findall(r"\[([\d,]+)\]", rendered) for n in s.split(",")})
    for size in reversed(sizes):
        for smaller in sorted({1, 2, 3, 8, size // 2, size - 1} - {0}):
            if smaller < size:
                changed = _resized(rendered, size, smaller)
                if changed != rendered:
                    yield read(changed)


def _resized(rendered: str, size: int, smaller: int) -> str:
    def numbers(found: re.Match[str]) -> str:
        return re.sub(rf"(?<!\d){size}(?!\d)", str(smaller), found[0])

    changed = re.sub(r"\[[\d,:]+\]", numbers, rendered)
    return re.sub(r"(slice_sizes=\{|fft_length=\{|window=\{size=|k=)[\dx,]+", numbers, changed)


_STEPS = (
    _outputs, _without_attributes, _to_parameters, _inlined, _skipped, _to_constants,
    _narrower_states, _smaller_dims,
)  # fmt: skip
_MAY_GROW = (_to_parameters, _inlined, _to_constants)
