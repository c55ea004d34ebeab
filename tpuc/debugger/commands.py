"""The debugger's commands: one line in, a text out. The prompt and scripts are made of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tpuc.debugger import show
from tpuc.debugger.breakpoints import DebuggerError
from tpuc.debugger.debugger import UNITS, Debugger, StopReport
from tpuc.debugger.target import near

_REGISTER = re.compile(r"[svm]\d+")
_EXAMINE = re.compile(r"x(?:/(\d*)([a-z]?))?")
_KEY = re.compile(r"(?P<name>[^\[]+)(?P<key>\[.*\])?")


@dataclass(frozen=True)
class Command:
    """A command: its usage, what it does in some words, the method, and all there is to know of it."""

    usage: str
    about: str
    call: Callable[[CommandLoop, str], str]
    aliases: tuple[str, ...] = ()
    more: str = ""

    @property
    def name(self) -> str:
        """The first word of its usage."""
        return self.usage.split()[0]


class CommandLoop:
    """Runs command lines on a debugger. `is_over` after `quit`."""

    def __init__(self, debugger: Debugger) -> None:
        self.debugger = debugger
        self.is_over = False
        self._displays: list[str] = []

    def execute(self, line: str) -> str:
        """What a command line prints; raises `DebuggerError` or what the debugger's methods raise."""
        text = line.partition("#")[0].strip()
        if not text:
            return ""
        word, _, rest = text.partition(" ")
        if word == "x" or word.startswith("x/"):
            return self._examine(word, rest.strip())
        return find_command(word).call(self, rest.strip())

    def _stopped(self, stop: StopReport) -> str:
        where = stop.where
        lines = [stop.reason] if stop.reason else []
        lines.append(where.line(has_cores=self.debugger.chips > 1))
        if where.bundle is not None:
            lines.append(f"=> {where.bundle:>5} {where.text}")
        for shown in self._displays:
            try:
                lines.append(f"{shown}: {self._print(shown)}")
            except ValueError as error:
                lines.append(f"{shown}: {error}")
        return "\n".join(lines)

    # commands

    def _break(self, rest: str, *, temporary: bool = False) -> str:
        place, _, condition = rest.partition(" if ")
        if not place.strip():
            raise DebuggerError("want a place; try help break")
        return self.debugger.break_at(
            place.strip(), condition.strip(), temporary=temporary
        ).describe()

    def _watch(self, rest: str) -> str:
        what, _, condition = rest.partition(" if ")
        return self.debugger.watch(what.strip(), condition.strip()).describe()

    def _delete(self, rest: str) -> str:
        self.debugger.delete(_number(rest) if rest else None)
        return ""

    def _enable(self, rest: str, *, is_enabled: bool = True) -> str:
        self.debugger.enable([_number(word) for word in rest.split()], is_enabled=is_enabled)
        return ""

    def _step(self, rest: str, *, is_back: bool = False) -> str:
        words = rest.split()
        units = [word for word in words if not word.isdecimal()]
        counts = [int(word) for word in words if word.isdecimal()]
        move = self.debugger.reverse_step if is_back else self.debugger.step
        return self._stopped(move(units[0] if units else "bundle", counts[0] if counts else 1))

    def _continue(self, rest: str) -> str:
        stop = self.debugger.cont()
        for _ in range(1, _number(rest) if rest else 1):
            if stop.breakpoint is not None:
                stop = self.debugger.cont()
        return self._stopped(stop)

    def _print(self, rest: str) -> str:
        if not rest:
            raise DebuggerError("want a name: an HLO instruction, a register, or window NAME")
        if _REGISTER.fullmatch(rest):
            return show.register_text(self.debugger, rest)
        if rest.startswith("window "):
            return show.window_text(self.debugger, rest.removeprefix("window ").strip())
        return self._value(rest, evaluate=False)

    def _evaluate(self, rest: str) -> str:
        return f"evaluated, not read from the chip:\n{self._value(rest, evaluate=True)}"

    def _value(self, text: str, *, evaluate: bool) -> str:
        found = _KEY.fullmatch(text.strip())
        if found is None:
            raise DebuggerError(f"{text!r}: want NAME, or a part of it as in NAME[0,:4]")
        values = self.debugger.values(found["name"].strip(), evaluate=evaluate)
        if found["key"]:
            values = [_part_of(values[0], found["name"].strip(), found["key"])]
        return "\n".join(show.array_text(value) for value in values) or "no arrays"

    def _display(self, rest: str) -> str:
        self._displays.append(rest)
        return self._print(rest)

    def _undisplay(self, rest: str) -> str:
        self._displays = [] if not rest else [d for d in self._displays if d != rest]
        return ""

    def _info(self, rest: str) -> str:
        names = [name for name in TABLES if rest and name.startswith(rest)]
        if len(names) != 1:
            what = f"{rest!r} is more than one of them" if names else f"there is no {rest!r}"
            said = f"{what}: " if rest else ""
            raise DebuggerError(f"{said}want info with one of {', '.join(TABLES)}")
        return TABLES[names[0]](self)

    def _breakpoints(self) -> str:
        return "\n".join(b.describe() for b in self.debugger.breakpoints) or "no breakpoints"

    def _chips(self) -> str:
        rows = (self.debugger.where(core) for core in range(self.debugger.chips))
        lines = [
            f"{'*' if w.core == self.debugger.core else ' '} chip {w.core}  {w.line()}"
            for w in rows
        ]
        return "\n".join([f"{len(lines)} of {self.debugger.target.chip.name}", *lines])

    def _kernels(self) -> str:
        target = self.debugger.target
        rows = []
        for site in dict.fromkeys(target.map.sites):
            body = target.map.bodies[target.map.body_of_site(site)]
            rows.append(f"{site:<24} {body.count:>6} bundles  {body.kernel.note}")
        return "\n".join(rows)

    def _examine(self, word: str, rest: str) -> str:
        found, words = _EXAMINE.fullmatch(word), rest.split()
        if found is None or not words:
            raise DebuggerError("want x/8f hbm 0x200")
        space, address = words if len(words) == 2 else ("hbm", words[0])
        count = int(found[1] or 8)
        return show.memory_text(self.debugger, count, found[2] or "x", space, address)

    def _list(self, rest: str) -> str:
        what, _, name = rest.partition(" ")
        if what in ("", "bundles"):
            return show.bundles_text(self.debugger)
        if what == "hlo":
            return show.hlo_text(self.debugger, name.strip() or None)
        if what == "source":
            return show.source_text(self.debugger)
        raise DebuggerError(
            f"there is no {what!r} to list: want list [bundles | hlo [NAME] | source]"
        )

    def _help(self, rest: str) -> str:
        if rest:
            one = find_command(rest.split()[0])
            names = f" ({', '.join(one.aliases)})" if one.aliases else ""
            return "\n".join(filter(None, (f"{one.usage}{names}", one.about, one.more)))
        wide = max(len(c.usage) for c in COMMANDS) + 1
        return "\n".join(f"{c.usage:<{wide}} {c.about}" for c in COMMANDS)

    def _quit(self, rest: str) -> str:
        self.is_over = True
        return ""

    def _where(self, rest: str) -> str:
        return self._stopped(StopReport("", self.debugger.where()))

    def _chip(self, rest: str) -> str:
        return self._stopped(StopReport("", self.debugger.chip(_number(rest))))


TABLES: dict[str, Callable[[CommandLoop], str]] = {
    "breakpoints": CommandLoop._breakpoints,
    "registers": lambda c: show.registers_text(c.debugger),
    "windows": lambda c: show.windows_text(c.debugger),
    "mxu": lambda c: show.mxu_text(c.debugger),
    "dma": lambda c: show.dma_text(c.debugger),
    "flags": lambda c: show.flags_text(c.debugger),
    "chips": CommandLoop._chips,
    "kernels": CommandLoop._kernels,
}

_PLACES = """  break fusion.2            an HLO instruction: its kernel, or its first bundle
  break after fusion.2      when its kernel is over
  break fusion.2 step 3     where that step of its grid begins; no number: each
  break fusion.2:41         a bundle of its kernel, numbered as by tpuc view
  break net.py:12           first bundle of a source line, in each kernel
  break cycle 1000          the first bundle at or behind a cycle
  break nan                 where a result's first NaN is made; inf: infinity
  break WHERE if COND       of step, iteration, cycle, call, s0..,
                            max("fusion.2"), min, mean, sum, nans, infs"""

COMMANDS = (
    Command("break WHERE [if COND]", "stop at a place: help break lists them",
            CommandLoop._break, ("b",), _PLACES),
    Command("tbreak WHERE [if COND]", "stop there once; places as for break",
            lambda c, rest: c._break(rest, temporary=True), ("tb",)),
    Command("watch NAME | SPACE ADDR [COUNT]",
            "stop where an array or memory changes",
            CommandLoop._watch, (),
            "  watch fusion.2            an HLO instruction's array\n"
            "  watch hbm 0x200 64        bytes\n"
            "  watch vmem 100 8          rows of 512 bytes\n"
            "  watch smem 12             words"),
    Command("delete [NUMBER]", "forget a breakpoint, or all", CommandLoop._delete, ("d",)),
    Command("enable [NUMBER..]", "let breakpoints count again", CommandLoop._enable),
    Command("disable [NUMBER..]", "let breakpoints not count",
            lambda c, rest: c._enable(rest, is_enabled=False)),
    Command("run", "start again, on to the first breakpoint",
            lambda c, _: c._stopped(c.debugger.run()), ("r",)),
    Command("continue [COUNT]", "go on to the next breakpoint", CommandLoop._continue, ("c",)),
    Command("step [UNIT] [COUNT]", f"go on by a {', '.join(UNITS)}",
            CommandLoop._step, ("s",)),
    Command("finish", "go on until the kernel is over", lambda c, _: c._stopped(c.debugger.finish())),
    Command("reverse-step [UNIT] [COUNT]", "go back by as much",
            lambda c, rest: c._step(rest, is_back=True), ("rs",)),
    Command("reverse-continue", "back to where a breakpoint was hit last",
            lambda c, _: c._stopped(c.debugger.reverse_cont()), ("rc",)),
    Command("restart", "back to the start", lambda c, _: c._stopped(c.debugger.restart())),
    Command("where", "where the run stands", CommandLoop._where, ("w",)),
    Command("backtrace", "bundle, loops, kernel, entry",
            lambda c, _: show.backtrace_text(c.debugger), ("bt",)),
    Command("print NAME | REGISTER | window NAME",
            "what lies in memory and registers", CommandLoop._print, ("p",),
            "  print fusion.2[0,:4]      an HLO instruction's array, or a part of it\n"
            "  print s4, v12, m3         a register\n"
            "  print window in.x         a window of VMEM"),
    Command("evaluate NAME", "a value in a kernel, by the evaluator",
            CommandLoop._evaluate, ("e",), "  of the operands that lie in memory"),
    Command("display NAME", "print it at each stop", CommandLoop._display),
    Command("undisplay [NAME]", "print it, or anything, no more", CommandLoop._undisplay),
    Command("x/COUNTFORMAT [SPACE] ADDR", "memory by address",
            lambda c, rest: c._examine("x", rest), (),
            "  x/8f hbm 0x200            8 numbers: f (f32), h (bf16), d, u, x (32 bits)"),
    Command("info TABLE", "what holds something now: help info", CommandLoop._info, ("i",),
            "  " + ", ".join(TABLES)),
    Command("list [bundles | hlo [NAME] | source]", "the code around here", CommandLoop._list, ("l",)),
    Command("chip NUMBER", "look at another chip of the slice", CommandLoop._chip),
    Command("help [COMMAND]", "this list, or more of one", CommandLoop._help, ("h",)),
    Command("quit", "leave", CommandLoop._quit, ("q", "exit")),
)  # fmt: skip


def find_command(word: str) -> Command:
    """A command by its name, an alias, or the beginning of one name; raises `DebuggerError`."""
    exact = [c for c in COMMANDS if word == c.name or word in c.aliases]
    found = exact or [c for c in COMMANDS if c.name.startswith(word)]
    if len(found) == 1:
        return found[0]
    if found:
        raise DebuggerError(f"{word}: {', '.join(c.name for c in found)}")
    raise DebuggerError(f"no command {word!r}{near(word, [c.name for c in COMMANDS])}; try help")


def completions(debugger: Debugger, line: str) -> Iterator[str]:
    """The words that may stand at the end of a line."""
    words = line.split(" ")
    return (name for name in _names(debugger, words) if name.startswith(words[-1]))


def _names(debugger: Debugger, words: list[str]) -> list[str]:
    if len(words) == 1:
        return [name for c in COMMANDS for name in (c.name, *c.aliases) if "/" not in name]
    if words[0] in ("step", "s", "reverse-step", "rs"):
        return list(UNITS)
    if words[0] in ("info", "i"):
        return list(TABLES)
    target = debugger.target
    own = ["nan", "inf", "cycle", "after"] if words[0] in ("break", "b", "tbreak", "tb") else []
    return [
        *own,
        *dict.fromkeys([*target.map.sites, *target.map.instructions]),
        *target.map.lines(),
    ]


def _number(text: str) -> int:
    if not text.strip().isdecimal():
        raise DebuggerError(f"{text!r} is no number")
    return int(text)


def _part_of(value: npt.NDArray[np.generic], name: str, key: str) -> npt.NDArray[np.generic]:
    try:
        part: npt.NDArray[np.generic] = value[_key(key)]
    except IndexError as error:
        dims = list(value.shape)
        raise DebuggerError(f"{name} has dimensions {dims}, {key} is no part of it") from error
    return part


def _key(text: str) -> tuple[int | slice, ...]:
    """``[0,:4]`` as a key of an array."""
    try:
        tree = ast.parse(f"x{text}", mode="eval").body
    except SyntaxError as error:
        raise DebuggerError(f"{text}: {error.msg}") from error
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.value, ast.Name):
        raise DebuggerError(f"{text}: want one pair of brackets, as in [0,:4]")
    parts = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
    return tuple(_part(part, text) for part in parts)


def _part(part: ast.expr, text: str) -> int | slice:
    def number(node: ast.expr | None) -> int | None:
        if node is None:
            return None
        try:
            value = ast.literal_eval(node)
        except ValueError:
            value = None
        if not isinstance(value, int):
            raise DebuggerError(f"{text}: {ast.unparse(node)} is no whole number")
        return value

    if isinstance(part, ast.Slice):
        return slice(number(part.lower), number(part.upper), number(part.step))
    found = number(part)
    assert found is not None
    return found
