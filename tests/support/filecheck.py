"""A small FileCheck: a test is one file with its command, its input and what must come out.

    // A broadcast feeding one elementwise op is fused into it.
    // RUN: opt %s --passes=fusion
    ENTRY main { ... }
    // CHECK: ROOT %fusion = f32[256,128]{{.*}} fusion(%p0, %p1), kind=kLoop
    // CHECK-NOT: broadcast

Directives, in the order of the file (text after them is matched with runs of white space equal):

    CHECK:        the text occurs at or after the place reached so far
    CHECK-NEXT:   it occurs on the line after the last match
    CHECK-SAME:   it occurs later on the line of the last match
    CHECK-NOT:    it does not occur between the matches around it
    CHECK-LABEL:  it occurs; checks between two labels see only what lies between their matches

``{{regex}}`` matches a regular expression, ``[[NAME:regex]]`` also binds it and ``[[NAME]]``
means what was bound. A command's name is looked up in `COMMANDS`; it gets the file and its
arguments and returns the text to check. With ``pytest --update`` a positive check that fails
is rewritten to the line of the output that resembles it most.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Command = Callable[[Path, Sequence[str]], str]

COMMANDS: dict[str, Command] = {}

_RUN = re.compile(r"(?://|;|#)\s*RUN:\s*(.+)")
_CHECK = re.compile(r"((?://|;|#)\s*CHECK(?:-(NEXT|SAME|NOT|LABEL))?:)(.*)")
_SPECIAL = re.compile(r"\{\{(.*?)\}\}(?!\})|\[\[(\w+):(.*?)\]\](?!\])|\[\[(\w+)\]\]")


class FileCheckError(AssertionError):
    """The output is not what the file says; the message shows the directive and the output."""


@dataclass(frozen=True)
class Check:
    """One directive: its kind ("" for a plain CHECK), its text, its 0-based line in the file."""

    kind: str
    text: str
    line: int


def command(name: str) -> Callable[[Command], Command]:
    """Register a command for RUN lines."""

    def register(function: Command) -> Command:
        COMMANDS[name] = function
        return function

    return register


def run_lines(text: str) -> list[list[str]]:
    """The commands of a test file, split like a shell does; empty when it is not a test."""
    return [shlex.split(found[1]) for found in _RUN.finditer(text)]


def parse_checks(text: str) -> list[Check]:
    """The directives of a test file."""
    checks = []
    for number, line in enumerate(text.splitlines()):
        found = _CHECK.search(line)
        if found is not None:
            checks.append(Check(found[2] or "", found[3].strip(), number))
    return checks


def run_file(path: Path, *, update: bool = False) -> None:
    """Run a test file: every command's output must satisfy the checks."""
    text = path.read_text()
    checks = parse_checks(text)
    assert checks or update, (
        f"{path}: no CHECK line, so the test cannot fail; `pytest tests/filecheck --update` writes them"
    )
    for name, *arguments in run_lines(text):
        assert name in COMMANDS, f"{path}: unknown command {name!r}, know {sorted(COMMANDS)}"
        output = COMMANDS[name](path, [a for a in arguments if a != "%s"])
        if update:
            path.write_text(updated(path.read_text(), output))
            checks = parse_checks(path.read_text())
        try:
            match(output, checks)
        except FileCheckError as error:
            command_line = " ".join([name, *arguments])
            raise FileCheckError(f"{path}: RUN: {command_line}\n{error}") from None


def match(output: str, checks: Sequence[Check]) -> None:
    """Raise FileCheckError for the first check that `output` does not satisfy."""
    text = _canonical(output)
    labels = [i for i, check in enumerate(checks) if check.kind == "LABEL"]
    variables: dict[str, str] = {}
    if not labels:
        _match_section(text, checks, variables)
        return
    starts = []
    position = 0
    for i in labels:
        found = _pattern(checks[i], variables).search(text, position)
        if found is None:
            raise FileCheckError(_message(checks[i], "is not found", text[position:]))
        starts.append(found.start())
        position = found.end()
    _match_section(text[: starts[0]], checks[: labels[0]], variables)
    for number, i in enumerate(labels):
        last = number + 1 == len(labels)
        section = text[starts[number] : None if last else starts[number + 1]]
        end = len(checks) if last else labels[number + 1]
        _match_section(section, checks[i:end], variables)


def _match_section(text: str, checks: Sequence[Check], variables: dict[str, str]) -> None:
    position = 0
    forbidden: list[Check] = []
    for check in checks:
        if check.kind == "NOT":
            forbidden.append(check)
            continue
        found = _find(text, position, check, variables)
        _check_absent(text[position : found.start()], forbidden, variables)
        forbidden = []
        variables.update({k: v for k, v in found.groupdict().items() if v is not None})
        position = found.end()
    _check_absent(text[position:], forbidden, variables)


def _find(text: str, position: int, check: Check, variables: dict[str, str]) -> re.Match[str]:
    start, end = _allowed(text, position, check.kind)
    found = _pattern(check, variables).search(text, start, end)
    if found is None:
        where = {"NEXT": "is not on the next line", "SAME": "is not on the same line"}
        raise FileCheckError(_message(check, where.get(check.kind, "is not found"), text[start:]))
    return found


def _allowed(text: str, position: int, kind: str) -> tuple[int, int]:
    """The part of the text in which a check of this kind may match."""
    if kind not in ("NEXT", "SAME"):
        return position, len(text)
    line_end = _line_end(text, position)
    if kind == "SAME":
        return position, line_end
    return line_end + 1, _line_end(text, line_end + 1)


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _check_absent(text: str, forbidden: list[Check], variables: dict[str, str]) -> None:
    for check in forbidden:
        found = _pattern(check, variables).search(text)
        if found is not None:
            line_start = text.rfind("\n", 0, found.start()) + 1
            raise FileCheckError(_message(check, "does occur", text[line_start:]))


def _canonical(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text)


def _pattern(check: Check, variables: dict[str, str]) -> re.Pattern[str]:
    """The regular expression that a check's text stands for."""
    text = _canonical(check.text)
    parts: list[str] = []
    position = 0
    bound: set[str] = set()
    for found in _SPECIAL.finditer(text):
        parts.append(re.escape(text[position : found.start()]))
        regex, new_name, new_regex, old_name = found.groups()
        if regex is not None:
            parts.append(f"(?:{regex})")
        elif new_name is not None:
            parts.append(f"(?P<{new_name}>{new_regex})")
            bound.add(new_name)
        elif old_name in bound:
            parts.append(f"(?P={old_name})")
        elif old_name in variables:
            parts.append(re.escape(variables[old_name]))
        else:
            raise FileCheckError(_message(check, f"uses [[{old_name}]], which is not bound", ""))
        position = found.end()
    parts.append(re.escape(text[position:]))
    return re.compile("".join(parts), re.MULTILINE)


def _message(check: Check, problem: str, seen: str) -> str:
    kind = f"CHECK-{check.kind}" if check.kind else "CHECK"
    excerpt = "\n".join(f"    {line}" for line in seen.strip("\n").splitlines()[:24])
    return f"line {check.line + 1}: {kind}: {check.text}\n  {problem} in\n{excerpt}"


def updated(test: str, output: str) -> str:
    """Rewrite the positive checks that fail to the most similar line of the output; a test without any gets
    one for each line."""
    lines = test.split("\n")
    printed = [line.strip() for line in output.splitlines()]
    candidates = [line for line in printed if line]
    checks = parse_checks(test)
    if not checks:
        new = [
            f"// CHECK{'-NEXT' if before else ''}: {line}"  # none follows an empty line
            for before, line in zip(["", *printed], printed, strict=False)
            if line
        ]
        return "\n".join([test.rstrip("\n"), *new, ""])
    for _ in checks:
        try:
            match(output, checks)
            break
        except FileCheckError:
            number = _first_failing(output, checks)
        check = checks[number]
        if check.kind == "NOT":
            break
        best = difflib.get_close_matches(check.text, candidates, n=1, cutoff=0.0)
        if not best:
            break
        head = lines[check.line].partition(":")[0]
        lines[check.line] = f"{head}: {best[0]}"
        checks[number] = Check(check.kind, best[0], check.line)
    return "\n".join(lines)


def _first_failing(output: str, checks: Sequence[Check]) -> int:
    """The position of the first check without which those before it would all match."""
    for count in range(1, len(checks) + 1):
        try:
            match(output, checks[:count])
        except FileCheckError:
            return count - 1
    return len(checks) - 1
