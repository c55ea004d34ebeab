"""How compile time grows with a program: generated programs of growing size, parsing to bundles.

    python -m benchmarks.compile_scaling [PROGRAM ...] [--sizes 250,500,1000,2000]

For each kind of program it prints the processor seconds at each size, by stage where that tells,
and the exponent of the growth from the size before: 1 is linear. Nothing is executed.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

from compiler.driver import CompiledModule, compile_module
from compiler.hlo.parser import parse_module
from tpu_sim.isa.chips import load_chip

_VECTOR = "f32[8,128]"
_BINARY = ("add", "multiply", "maximum", "subtract")


def chain(count: int) -> str:
    """Elementwise operations one after another: one large fusion."""
    lines = [f"v0 = {_VECTOR} parameter(0)", f"p = {_VECTOR} parameter(1)"]
    for i in range(count):
        lines.append(f"v{i + 1} = {_VECTOR} {_BINARY[i % 4]}(v{i}, p)")
    return _module(lines)


def wide_sum(count: int) -> str:
    """Values that all come from one parameter, added up as a tree."""
    lines = [f"p = {_VECTOR} parameter(0)"]
    level = []
    for i in range(count // 2):
        lines.append(f"c{i} = f32[] constant({i + 2})")
        lines.append(f"b{i} = {_VECTOR} broadcast(c{i}), dimensions={{}}")
        lines.append(f"v{i} = {_VECTOR} maximum(p, b{i})")
        level.append(f"v{i}")
    while len(level) > 1:
        following = []
        for first, second in zip(level[::2], level[1::2], strict=False):
            name = f"{first}_{len(level)}"
            lines.append(f"{name} = {_VECTOR} add({first}, {second})")
            following.append(name)
        level = following + level[len(level) - len(level) % 2 :]
    return _module(lines)


def parameters(count: int) -> str:
    """As many parameters as results."""
    lines = [f"p{i} = {_VECTOR} parameter({i})" for i in range(count // 2)]
    lines += [f"v{i} = {_VECTOR} tanh(p{i})" for i in range(count // 2)]
    lines.append(_results([f"v{i}" for i in range(count // 2)]))
    return _module(lines)


def users(count: int) -> str:
    """One value with many users, each a result of its own."""
    lines = [f"p = {_VECTOR} parameter(0)", f"w = {_VECTOR} tanh(p)"]
    for i in range(count):
        other = "w" if i % 2 else "p"
        lines.append(f"v{i} = {_VECTOR} {_BINARY[i % 4]}(w, {other if i < 4 else f'v{i - 4}'})")
    lines.append(_results([f"v{i}" for i in range(count)]))
    return _module(lines)


def dots(count: int) -> str:
    """Products one after another, each followed by arithmetic."""
    shape = "f32[128,128]"
    lines = [f"v0 = {shape} parameter(0)", f"w = {shape} parameter(1)"]
    for i in range(count // 2):
        dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        lines.append(f"d{i} = {shape} dot(v{i}, w), {dims}")
        lines.append(f"v{i + 1} = {shape} tanh(d{i})")
    return _module(lines)


def reductions(count: int) -> str:
    """Row sums taken from the values, as a chain of normalisations."""
    lines = ["v0 = f32[8,128] parameter(0)", "zero = f32[] constant(0)"]
    for i in range(count // 3):
        lines.append(f"s{i} = f32[8] reduce(v{i}, zero), dimensions={{1}}, to_apply=sum")
        lines.append(f"b{i} = f32[8,128] broadcast(s{i}), dimensions={{0}}")
        lines.append(f"v{i + 1} = f32[8,128] divide(v{i}, b{i})")
    return _module(lines)


def updates(count: int) -> str:
    """A buffer that is updated again and again, and read in between."""
    lines = [
        "v0 = f32[1024,128] parameter(0)",
        "zero = s32[] constant(0)",
        "i = s32[] parameter(1)",
    ]
    for n in range(count // 3):
        lines.append(
            f"r{n} = {_VECTOR} dynamic-slice(v{n}, i, zero), dynamic_slice_sizes={{8,128}}"
        )
        lines.append(f"t{n} = {_VECTOR} tanh(r{n})")
        lines.append(f"v{n + 1} = f32[1024,128] dynamic-update-slice(v{n}, t{n}, i, zero)")
    return _module(lines)


def shapes(count: int) -> str:
    """Slices of one value, joined by one concatenation."""
    lines = [f"p = f32[{8 * count},128] parameter(0)"]
    for i in range(count // 2):
        bounds = f"[{8 * i}:{8 * i + 8}], [0:128]"
        lines.append(f"s{i} = {_VECTOR} slice(p), slice={{{bounds}}}")
        lines.append(f"v{i} = {_VECTOR} tanh(s{i})")
    parts = ", ".join(f"v{i}" for i in range(count // 2))
    lines.append(f"c = f32[{8 * (count // 2)},128] concatenate({parts}), dimensions={{0}}")
    return _module(lines)


def loops(count: int) -> str:
    """Loops one after another, each in a loop of its own."""
    computations, lines = [], [f"v0 = {_VECTOR} parameter(0)", "zero = s32[] constant(0)"]
    state = f"(s32[], {_VECTOR})"
    for i in range(count // 20):
        computations += [_condition(f"c{i}", state), _condition(f"oc{i}", state)]
        computations.append(_body(f"b{i}", state, [f"y = {_VECTOR} tanh(x)"]))
        inner = [
            "z = s32[] constant(0)",
            f"u = {state} tuple(z, x)",
            f"l = {state} while(u), condition=c{i}, body=b{i}",
            f"y = {_VECTOR} get-tuple-element(l), index=1",
        ]
        computations.append(_body(f"ob{i}", state, inner))
        lines.append(f"t{i} = {state} tuple(zero, v{i})")
        lines.append(f"l{i} = {state} while(t{i}), condition=oc{i}, body=ob{i}")
        lines.append(f"v{i + 1} = {_VECTOR} get-tuple-element(l{i}), index=1")
    return _module(lines, computations)


def loop_state(count: int) -> str:
    """One loop with many elements in its state."""
    elements = count // 4
    state = f"(s32[], {', '.join([_VECTOR] * elements)})"
    inner = [f"x{i} = {_VECTOR} get-tuple-element(t), index={i + 1}" for i in range(elements)]
    inner += [f"y{i} = {_VECTOR} tanh(x{(i + 1) % elements})" for i in range(elements)]
    names = ", ".join(f"y{i}" for i in range(elements))
    body = _computation(
        "body", state, ["i = s32[] get-tuple-element(t), index=0", "one = s32[] constant(1)",
                        "j = s32[] add(i, one)", *inner, f"ROOT r = {state} tuple(j, {names})"]
    )  # fmt: skip
    lines = [f"p{i} = {_VECTOR} parameter({i})" for i in range(elements)]
    given = ", ".join(f"p{i}" for i in range(elements))
    lines += ["zero = s32[] constant(0)", f"t = {state} tuple(zero, {given})"]
    lines.append(f"l = {state} while(t), condition=cond, body=body")
    return _module(lines, [_condition("cond", state), body])


PROGRAMS: dict[str, Callable[[int], str]] = {
    made.__name__: made
    for made in (
        chain, wide_sum, parameters, users, dots, reductions, updates, shapes, loops, loop_state,
    )
}  # fmt: skip
"""By name what makes a program of about so many instructions."""


def _computation(name: str, state: str, lines: list[str]) -> str:
    body = "\n".join(f"  {line}" for line in [f"t = {state} parameter(0)", *lines])
    return f"{name} {{\n{body}\n}}\n"


def _condition(name: str, state: str) -> str:
    lines = ["i = s32[] get-tuple-element(t), index=0", "n = s32[] constant(3)"]
    return _computation(name, state, [*lines, "ROOT c = pred[] compare(i, n), direction=LT"])


def _body(name: str, state: str, lines: list[str]) -> str:
    """A loop's body: `lines` make y of x."""
    start = ["i = s32[] get-tuple-element(t), index=0", "one = s32[] constant(1)"]
    start += ["j = s32[] add(i, one)", f"x = {_VECTOR} get-tuple-element(t), index=1"]
    return _computation(name, state, [*start, *lines, f"ROOT r = {state} tuple(j, y)"])


def _results(names: list[str]) -> str:
    shapes = ", ".join([_VECTOR] * len(names))
    return f"r = ({shapes}) tuple({', '.join(names)})"


def _module(lines: list[str], computations: list[str] | None = None) -> str:
    """A module whose result is the last of `lines`."""
    total = (
        "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n"
    )
    *most, last = (f"  {line}" for line in lines)
    entry = "\n".join(["ENTRY main {", *most, f"  ROOT {last.strip()}", "}"])
    return "\n".join(["HloModule scaling\n", total, *(computations or []), entry, ""])


def compiled(text: str) -> CompiledModule:
    """Parse and compile for v5e; `timings` begin with parsing."""
    started = time.perf_counter()
    module = parse_module(text, "<scaling>")
    parsed = time.perf_counter() - started
    found = compile_module(module, load_chip("v5e"))
    found.timings = {"parse": parsed, **found.timings}
    return found


def measure(name: str, size: int) -> tuple[float, str]:
    """Processor seconds of one compilation, and where most of the time went."""
    text = PROGRAMS[name](size)
    started = time.process_time()
    found = compiled(text)
    seconds = time.process_time() - started
    parts = dict(found.timings)
    parts.pop("passes", None), parts.pop("lower", None)
    parts.update({f"pass {item.name}": item.seconds for item in found.passes})
    whole = sum(parts.values()) or 1.0
    most = sorted(parts.items(), key=lambda part: -part[1])[:3]
    return seconds, ", ".join(f"{part} {value / whole:.0%}" for part, value in most)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--sizes", default="250,500,1000,2000", help="operations, between commas")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    for name in PROGRAMS:
        compiled(PROGRAMS[name](20))  # what happens once in a process
    for name in arguments.programs or PROGRAMS:
        before: tuple[int, float] | None = None
        for size in sizes:
            seconds, parts = measure(name, size)
            growth = ""
            if before is not None:
                growth = f"{math.log(seconds / before[1]) / math.log(size / before[0]):.2f}"
            print(f"{name:12} {size:6} {seconds:8.2f} s  {growth:>5}  {parts}", flush=True)
            before = (size, seconds)


if __name__ == "__main__":
    main()
