"""Random programs of a few operations on arrays of a wanted size, as HLO text.

Made for the window search: any rank, odd and long dimensions, every operation that is a kernel of
windows, alone or a few in a row.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

_BYTES = {"f32": 4, "bf16": 2, "s32": 4, "s8": 1, "pred": 1}
_MOVES = ("reshape", "transpose", "slice", "reverse", "pad", "concatenate", "elementwise")
_WHOLE = ("dot", "broadcast", "reduce", "softmax", "dynamic-slice", "chain", *_MOVES)
_LONGEST = 100_000

Dims = list[int]


def sized_program(seed: int, least_bytes: float, most_bytes: float) -> str:
    """The HLO text of a program whose largest array has about so many bytes."""
    rng = random.Random(seed)
    dtype = rng.choice(list(_BYTES))
    size = math.exp(rng.uniform(math.log(least_bytes), math.log(most_bytes))) / _BYTES[dtype]
    program = _Program(rng, dtype)
    kind = rng.choice(_WHOLE)
    if kind == "dot":
        program.dot(size)
    elif kind in ("reduce", "softmax"):
        program.reduction(_dims(rng, rng.randint(1, 6), size), is_softmax=kind == "softmax")
    elif kind == "broadcast":
        program.broadcast(_dims(rng, rng.randint(1, 6), size))
    elif kind == "dynamic-slice":
        program.dynamic_slice(_dims(rng, rng.randint(1, 6), size))
    else:
        dims = _dims(rng, rng.randint(1, 6), size)
        value = program.parameter(dims)
        count = rng.randint(2, 4) if kind == "chain" else 1
        for _ in range(count):
            move = rng.choice(_MOVES) if kind == "chain" else kind
            value, dims = program.move(move, value, dims)
    return program.text()


def _dims(rng: random.Random, rank: int, size: float) -> Dims:
    """`rank` dimensions with a product of about `size`."""
    shares = [rng.random() ** 2 + 0.02 for _ in range(rank)]
    total = sum(shares)
    found: Dims = []
    for share in shares:
        dim = min(_LONGEST, max(1, round(math.exp(math.log(max(size, 2)) * share / total))))
        unit = rng.choice((1, 1, 1, 8, 128))
        found.append(max(1, dim // unit * unit))
    rng.shuffle(found)
    return found


def _factors(number: int) -> list[int]:
    found: list[int] = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found


@dataclass
class _Program:
    rng: random.Random
    dtype: str
    lines: list[str] = field(default_factory=list)
    parameters: int = 0
    needs_sum: bool = False

    def text(self) -> str:
        *rest, last = self.lines
        body = "\n".join([*rest, last.replace("  ", "  ROOT ", 1)])
        scalar = f"{self.dtype}[]"
        add = (
            f"add {{\n  a = {scalar} parameter(0)\n  b = {scalar} parameter(1)\n"
            f"  ROOT c = {scalar} add(a, b)\n}}\n"
        )
        return f"HloModule sized\n{add if self.needs_sum else ''}ENTRY main {{\n{body}\n}}\n"

    def parameter(self, dims: Dims, dtype: str = "") -> str:
        self.parameters += 1
        return self.add(dims, f"parameter({self.parameters - 1})", dtype)

    def add(self, dims: Dims, what: str, dtype: str = "") -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"  {name} = {_shape(dtype or self.dtype, dims)} {what}")
        return name

    def move(self, kind: str, value: str, dims: Dims) -> tuple[str, Dims]:
        result, what = getattr(self, f"_{kind}")(value, dims)
        return self.add(result, what), result

    def _reshape(self, value: str, dims: Dims) -> tuple[Dims, str]:
        result = [1] * self.rng.randint(1, 6)
        for factor in _factors(math.prod(dims)):
            result[self.rng.randrange(len(result))] *= factor
        return result, f"reshape({value})"

    def _transpose(self, value: str, dims: Dims) -> tuple[Dims, str]:
        order = self.rng.sample(range(len(dims)), len(dims))
        return [dims[d] for d in order], f"transpose({value}), dimensions={{{_list(order)}}}"

    def _slice(self, value: str, dims: Dims) -> tuple[Dims, str]:
        ranges = [(self.rng.randint(0, n // 4), n - self.rng.randint(0, n // 4)) for n in dims]
        strides = [self.rng.choice((1, 1, 2, 3)) for _ in dims]
        pairs = list(zip(ranges, strides, strict=True))
        text = ", ".join(f"[{a}:{b}:{s}]" for (a, b), s in pairs)
        return [-(-(b - a) // s) for (a, b), s in pairs], f"slice({value}), slice={{{text}}}"

    def _reverse(self, value: str, dims: Dims) -> tuple[Dims, str]:
        turned = [d for d in range(len(dims)) if self.rng.random() < 0.5] or [0]
        return dims, f"reverse({value}), dimensions={{{_list(turned)}}}"

    def _pad(self, value: str, dims: Dims) -> tuple[Dims, str]:
        rng = self.rng
        pads = [
            (
                rng.randint(-min(3, n // 3), 5),
                rng.randint(-min(3, n // 3), 9),
                rng.choice((0, 0, 1)),
            )
            for n in dims
        ]
        result = [n + (n - 1) * i + a + b for n, (a, b, i) in zip(dims, pads, strict=True)]
        text = "x".join(f"{a}_{b}_{i}" for a, b, i in pads)
        fill = self.add([], f"constant({'true' if self.dtype == 'pred' else 1})")
        return result, f"pad({value}, {fill}), padding={text}"

    def _concatenate(self, value: str, dims: Dims) -> tuple[Dims, str]:
        axis = self.rng.randrange(len(dims))
        count = self.rng.choice((1, 1, 2, 16))
        sizes = [self.rng.randint(1, dims[axis] // count + 3) for _ in range(count)]
        more = [self.parameter([*dims[:axis], n, *dims[axis + 1 :]]) for n in sizes]
        result = [*dims[:axis], dims[axis] + sum(sizes), *dims[axis + 1 :]]
        return result, f"concatenate({', '.join([value, *more])}), dimensions={{{axis}}}"

    def _elementwise(self, value: str, dims: Dims) -> tuple[Dims, str]:
        operation = "xor" if self.dtype == "pred" else "add"
        return dims, f"{operation}({value}, {self.parameter(dims)})"

    def broadcast(self, dims: Dims) -> None:
        kept = [d for d in range(len(dims)) if self.rng.random() < 0.6]
        value = self.parameter([dims[d] for d in kept])
        self.add(dims, f"broadcast({value}), dimensions={{{_list(kept)}}}")

    def dynamic_slice(self, dims: Dims) -> None:
        value = self.parameter(dims)
        result = [max(1, n - self.rng.choice((0, 1, n // 2))) for n in dims]
        starts = ", ".join(self.parameter([], "s32") for _ in dims)
        sizes = f"dynamic_slice_sizes={{{_list(result)}}}"
        self.add(result, f"dynamic-slice({value}, {starts}), {sizes}")

    def reduction(self, dims: Dims, *, is_softmax: bool) -> None:
        self.dtype = "f32" if is_softmax else self.rng.choice(("f32", "bf16", "s32"))
        self.needs_sum = True
        reduced = [d for d in range(len(dims)) if self.rng.random() < 0.5] or [len(dims) - 1]
        kept = [d for d in range(len(dims)) if d not in reduced]
        value, zero = self.parameter(dims), self.add([], "constant(0)")
        if is_softmax:
            value = self.add(dims, f"exponential({value})")
        what = f"reduce({value}, {zero}), dimensions={{{_list(reduced)}}}, to_apply=add"
        total = self.add([dims[d] for d in kept], what)
        if is_softmax:
            spread = self.add(dims, f"broadcast({total}), dimensions={{{_list(kept)}}}")
            self.add(dims, f"divide({value}, {spread})")

    def dot(self, size: float) -> None:
        """Of one array with itself, or of two; sides and depth of any length."""
        rng = self.rng
        self.dtype = rng.choice(("f32", "f32", "bf16"))
        if rng.random() < 0.2:
            side = max(1, int(math.sqrt(size)))
            value = self.parameter([side, side])
            dims, operands, left, right = [side, side], f"{value}, {value}", 1, 0
        else:
            rows, depth, columns = (min(60_000, n) for n in _dims(rng, 3, size**1.4))
            left, right = rng.randint(0, 1), rng.randint(0, 1)
            a = self.parameter([rows, depth] if left else [depth, rows])
            b = self.parameter([columns, depth] if right else [depth, columns])
            dims, operands = [rows, columns], f"{a}, {b}"
        precision = rng.choice(("", ", operand_precision={highest,highest}"))
        contracted = f"lhs_contracting_dims={{{left}}}, rhs_contracting_dims={{{right}}}"
        self.add(dims, f"dot({operands}), {contracted}{precision}")


def _shape(dtype: str, dims: Dims) -> str:
    return f"{dtype}[{_list(dims)}]"


def _list(numbers: Dims) -> str:
    return ",".join(map(str, numbers))
