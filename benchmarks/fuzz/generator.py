"""A random module by its seed: the text, and nothing else that one needs to know."""

from __future__ import annotations

import random
import re

import benchmarks.fuzz.makers  # noqa: F401  (registers them)
from benchmarks.fuzz.makers.filling import fill
from benchmarks.fuzz.makers.registry import MAKERS, Maker
from benchmarks.fuzz.scope import MOST_ELEMENTS, Program, Scope, Value

_MIDDLE = 30
"""How much larger some modules are: kernels of several steps, transfers that are shared."""


def generate(seed: int, most_elements: int = MOST_ELEMENTS) -> str:
    """The module of a seed."""
    rng = random.Random(seed)
    size = rng.choice((most_elements // 8, most_elements, most_elements))
    program = Program(rng, size if rng.random() > 0.05 else _MIDDLE * most_elements)
    return _module(program, rng.choice((1, 2, 3, 4, 6, 8, 12)))


def entry_scope(rng: random.Random) -> Scope:
    """An empty entry computation."""
    return Scope(Program(rng), "entry")


def generate_real(seed: int) -> str:
    """A module of the same makers whose largest arrays have 1 MB to 1 GB."""
    rng = random.Random(seed)
    most_bytes = 2.0 ** rng.uniform(20, 30)
    count = rng.choice((1, 2, 3, 4, 6)) if most_bytes < 2**28 else rng.choice((1, 2))
    return _module(Program(rng, int(most_bytes / 4), is_real=True), count)


def _module(program: Program, count: int) -> str:
    rng = program.rng
    entry = Scope(program, "entry")
    theme = _theme(rng)
    for _ in range(count):
        fill(entry, 1, theme if rng.random() < 0.6 else _any)
    if rng.random() < 0.06:
        _add_control_edges(entry)
    results = _results(entry)
    as_tuple = len(results) > 1 or rng.random() < 0.5
    if rng.random() < 0.08:
        _group_parameters(entry)
    entry.is_nested = rng.random() < 0.05
    text = entry.text("e", results, as_tuple)
    parts = [_header(entry, results, as_tuple), *program.computations.values(), "ENTRY " + text]
    return _dressed(rng, "\n".join(parts))


def _group_parameters(entry: Scope) -> None:
    """Some of the parameters arrive together, those of one kind of values in one tuple."""
    by_kind: dict[str, list[Value]] = {}
    for v in entry.given:
        if entry.rng.random() < 0.7:
            by_kind.setdefault(v.name.rpartition("_")[2], []).append(v)
    entry.groups = list(by_kind.values())


_ARRAY = re.compile(r"(\w+)\[(\d+(?:,\d+)+)\]")
_TILES = {
    "f32": (":T(8,128)", ":T(4,128)", ":T(2,128)", ""),
    "s32": (":T(8,128)", ""),
    "bf16": (":T(8,128)(2,1)", ":T(4,128)(2,1)", ""),
    "s8": (":T(8,128)(4,1)", ""),
    "pred": (":T(8,128)(4,1)", ""),
}
"""What dumps of a TPU's compiler say behind the order of dimensions."""


def _dressed(rng: random.Random, text: str) -> str:
    """Some modules say more than they must: layouts of any order, where things came from."""
    if rng.random() < 0.08:
        is_tiled = rng.random() < 0.4
        text = "\n".join(_with_layouts(rng, line, is_tiled) for line in text.split("\n"))
        if rng.random() < 0.5:
            text = _with_entry_layout(text)
    if rng.random() < 0.1:
        text = "\n".join(_with_metadata(rng, line) for line in text.split("\n"))
    return text


def _with_layouts(rng: random.Random, line: str, is_tiled: bool) -> str:
    head, equals, rest = line.partition(" = ")
    if not equals:
        return line
    opcode = re.search(r"(?<=[\])}]) [a-z][\w\-]*\(", rest)
    if opcode is None:
        return line

    def with_order(found: re.Match[str]) -> str:
        rank = found[2].count(",") + 1
        order = ",".join(map(str, rng.sample(range(rank), rank)))
        tiles = _TILES.get(found[1], ()) if is_tiled else ()
        return f"{found[0]}{{{order}{rng.choice(tiles) if tiles else ''}}}"

    shape, call = rest[: opcode.start()], rest[opcode.start() :]
    return head + equals + _ARRAY.sub(with_order, shape) + call


def _with_entry_layout(text: str) -> str:
    """The layouts of the entry's parameters and result said in the header, too."""
    head, _, entry = text.partition("\nENTRY ")
    shape = r" = (\(.*?\)(?= [a-z])|\S+) "
    parameters = re.findall(shape + r"parameter\((\d+)\)", entry)
    root = re.search(r"ROOT \S+" + shape, entry)
    assert root is not None
    ordered = [s for s, _ in sorted(parameters, key=lambda found: int(found[1]))]
    first, newline, rest = head.partition("\n")
    layout = f"{first}, entry_computation_layout={{({', '.join(ordered)})->{root[1]}}}"
    return f"{layout}{newline}{rest}\nENTRY {entry}"


def _with_metadata(rng: random.Random, line: str) -> str:
    if " = " not in line or rng.random() < 0.5 or "constant(" in line:
        return line
    said = (
        f'metadata={{op_name="jit(f)/op{rng.randrange(9)}" source_line=7}}',
        'metadata={op_type="add" op_name="a/b[x=(1, 2)]" source_file="/f.py" source_line=3}',
        'frontend_attributes={a="b",c="1"}',
        "sharding={replicated}",
    )
    attribute = rng.choices(said, (4, 2, 1, 1))[0]
    return line if attribute.partition("=")[0] + "=" in line else f"{line}, {attribute}"


def _any(row: Maker) -> bool:
    return True


def _theme(rng: random.Random) -> object:
    """A family that this module has more of: its members meet each other."""
    if rng.random() < 0.4:
        return _any
    module = rng.choice(sorted({row.make.__module__ for row in MAKERS}))
    return lambda row: row.make.__module__ == module


def _results(entry: Scope) -> list[Value]:
    """All values that nobody uses, and some that somebody does."""
    rng = entry.rng
    body = "\n".join(line.partition(" = ")[2] for line in entry.lines)
    words = set(body.replace(",", " ").replace("(", " ").replace(")", " ").split())
    unused = [v for v in entry.values if v.name not in words and v not in entry.given]
    chosen = unused[-6:] or [entry.values[-1] if entry.values else entry.pick()]
    chosen += [v for v in entry.values if rng.random() < 0.06]
    rng.shuffle(chosen)
    return chosen[:8]


def _add_control_edges(entry: Scope) -> None:
    """Some instructions wait for others that stand before them."""
    rng = entry.rng
    for _ in range(rng.randint(1, 2)):
        if len(entry.lines) < 2:
            return
        at = rng.randrange(1, len(entry.lines))
        before = entry.lines[rng.randrange(at)].split(" = ")[0].strip()
        if "constant" not in entry.lines[at] and "control-predecessors" not in entry.lines[at]:
            entry.lines[at] += f", control-predecessors={{{before}}}"


def _header(entry: Scope, results: list[Value], as_tuple: bool) -> str:
    rng, line = entry.rng, "HloModule m"
    if rng.random() > 0.06 or not entry.given or entry.groups or entry.is_nested:
        return line + "\n"
    for i, p in enumerate(entry.given):
        same = [j for j, v in enumerate(results) if (v.dtype, v.dims) == (p.dtype, p.dims)]
        if same:
            where = f"{{{same[0]}}}" if as_tuple else "{}"
            kind = rng.choice(("may-alias", "must-alias"))
            return f"{line}, input_output_alias={{ {where}: ({i}, {{}}, {kind}) }}\n"
    return line + "\n"
