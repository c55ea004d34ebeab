"""Random chains of kernels on matrices, as HLO text: what one makes several later ones read.

Made for arrays that stay in VMEM: products, rows and columns, sums, moves and packed types follow
each other, so that producers and consumers of an array have different windows.
"""

from __future__ import annotations

import random

_ADD = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
"""
Value = tuple[str, tuple[int, int]]
_SIZES = (8, 60, 128, 130, 200, 256, 384)


def chained_program(seed: int, length: int, is_saving: bool = False) -> str:
    """A program of about `length` operations; `is_saving`: many of their values are results too."""
    chain = _Chain(random.Random(seed))
    for _ in range(length):
        chain.step()
    return chain.text(is_saving)


class _Chain:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._lines: list[str] = ["z = f32[] constant(0)"]
        self._parameters = 0
        self._given: set[str] = set()
        self._values: list[Value] = []
        self._values.append(self._parameter((rng.choice(_SIZES), rng.choice(_SIZES))))

    def _emit(self, dims: tuple[int, ...], expression: str, dtype: str = "f32") -> str:
        name = f"v{len(self._lines)}"
        sizes = ",".join(map(str, dims))
        self._lines.append(f"{name} = {dtype}[{sizes}] {expression}")
        return name

    def _parameter(self, dims: tuple[int, int]) -> Value:
        self._parameters += 1
        name = self._emit(dims, f"parameter({self._parameters - 1})")
        self._given.add(name)
        return name, dims

    def step(self) -> None:
        """One more operation on one of the last values."""
        name, (rows, cols) = self._rng.choice(self._values[-3:])
        kinds = (self._dot, self._dot, self._moved, self._unary, self._softmax, self._sums)
        kinds += (self._packed, self._joined, self._batched)
        kinds += (self._gathered, self._scattered, self._updated)
        self._values.append(self._rng.choice(kinds)(name, rows, cols))

    def _dot(self, name: str, rows: int, cols: int) -> Value:
        other = [v for v in self._values if v[1][0] == cols] or [
            self._parameter((cols, self._rng.choice(_SIZES)))
        ]
        right, (_, width) = self._rng.choice(other)
        contracting = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        dot = self._emit((rows, width), f"dot({name}, {right}), {contracting}")
        scale = self._emit((), "constant(0.0625)")
        wide = self._emit((rows, width), f"broadcast({scale}), dimensions={{}}")
        return self._emit((rows, width), f"multiply({dot}, {wide})"), (rows, width)

    def _moved(self, name: str, rows: int, cols: int) -> Value:
        kind = self._rng.choice(("transpose", "pad", "slice"))
        if kind == "transpose" or rows < 16 or cols < 16:
            return self._emit((cols, rows), f"transpose({name}), dimensions={{1,0}}"), (cols, rows)
        low, high = self._rng.choice((0, 3, 8)), self._rng.choice((0, 5, 8))
        if kind == "pad":
            dims = (rows + low + high, cols)
            return self._emit(dims, f"pad({name}, z), padding={low}_{high}x0_0"), dims
        dims = (rows - low, cols - high)
        return self._emit(dims, f"slice({name}), slice={{[{low}:{rows}], [{high}:{cols}]}}"), dims

    def _unary(self, name: str, rows: int, cols: int) -> Value:
        other = self._rng.choice([n for n, dims in self._values if dims == (rows, cols)])
        made = self._emit((rows, cols), f"{self._rng.choice(('tanh', 'negate'))}({name})")
        return self._emit((rows, cols), f"add({made}, {other})"), (rows, cols)

    def _reduced(self, name: str, size: int, dim: int) -> str:
        return self._emit((size,), f"reduce({name}, z), dimensions={{{dim}}}, to_apply=add")

    def _softmax(self, name: str, rows: int, cols: int) -> Value:
        small = self._emit((rows, cols), f"tanh({name})")
        powers = self._emit((rows, cols), f"exponential({small})")
        total = self._reduced(powers, rows, 1)
        wide = self._emit((rows, cols), f"broadcast({total}), dimensions={{0}}")
        return self._emit((rows, cols), f"divide({powers}, {wide})"), (rows, cols)

    def _sums(self, name: str, rows: int, cols: int) -> Value:
        dim = self._rng.randint(0, 1)
        kept = (rows, cols)[1 - dim]
        total = self._reduced(name, kept, dim)
        wide = self._emit((rows, cols), f"broadcast({total}), dimensions={{{1 - dim}}}")
        calm = self._emit((rows, cols), f"tanh({wide})")
        return self._emit((rows, cols), f"add({calm}, {name})"), (rows, cols)

    def _packed(self, name: str, rows: int, cols: int) -> Value:
        narrow = self._emit((rows, cols), f"convert({name})", "bf16")
        right = self._emit((cols, 128), f"parameter({self._parameters})", "bf16")
        self._parameters += 1
        contracting = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        product = self._emit((rows, 128), f"dot({narrow}, {right}), {contracting}", "bf16")
        wide = self._emit((rows, 128), f"convert({product})")
        return self._emit((rows, 128), f"tanh({wide})"), (rows, 128)

    def _joined(self, name: str, rows: int, cols: int) -> Value:
        turned = self._emit((rows, cols), f"reverse({name}), dimensions={{0}}")
        dims = (2 * rows, cols)
        return self._emit(dims, f"concatenate({turned}, {name}), dimensions={{0}}"), dims

    def _batched(self, name: str, rows: int, cols: int) -> Value:
        if rows % 4 or rows > 400:
            return self._unary(name, rows, cols)
        cube = (4, rows // 4, cols)
        split = self._emit(cube, f"reshape({name})")
        swapped = self._emit((rows // 4, 4, cols), f"transpose({split}), dimensions={{1,0,2}}")
        merged = self._emit((rows, cols), f"reshape({swapped})")
        return self._emit((rows, cols), f"add({merged}, {name})"), (rows, cols)

    def _places(self, count: int, rows: int) -> str:
        """`count` rows, many of them several times."""
        number = self._emit((count,), "iota(), iota_dimension=0", "s32")
        for factor, opcode in ((self._rng.choice((3, 5, 7)), "multiply"), (rows, "remainder")):
            scalar = self._emit((), f"constant({factor})", "s32")
            wide = self._emit((count,), f"broadcast({scalar}), dimensions={{}}", "s32")
            number = self._emit((count,), f"{opcode}({number}, {wide})", "s32")
        return number

    def _gathered(self, name: str, rows: int, cols: int) -> Value:
        count = self._rng.choice((72, 100, 256))
        places = self._places(count, rows)
        numbers = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        numbers += f"index_vector_dim=1, slice_sizes={{1,{cols}}}"
        return self._emit((count, cols), f"gather({name}, {places}), {numbers}"), (count, cols)

    def _scattered(self, name: str, rows: int, cols: int) -> Value:
        count = self._rng.choice((16, 60, 128))
        target = (count, cols)
        zeros = self._emit(target, "broadcast(z), dimensions={}")
        onto = [n for n, dims in self._values if dims == target]
        operand = self._rng.choice([zeros, *onto])
        places = self._places(rows, count)
        numbers = "update_window_dims={1}, inserted_window_dims={0}, "
        numbers += "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
        found = self._emit(target, f"scatter({operand}, {places}, {name}), {numbers}")
        return self._emit(target, f"tanh({found})"), target

    def _updated(self, name: str, rows: int, cols: int) -> Value:
        other, (height, width) = self._rng.choice(self._values)
        dims = (min(rows, height), min(cols, width))
        sizes = ", ".join(f"[0:{n}]" for n in dims)
        part = self._emit(dims, f"slice({other}), slice={{{sizes}}}")
        calm = self._emit(dims, f"tanh({part})")
        starts = [self._emit((), f"constant({self._rng.randint(0, 9)})", "s32") for _ in dims]
        made = self._emit((rows, cols), f"negate({name})")
        expression = f"dynamic-update-slice({made}, {calm}, {', '.join(starts)})"
        return self._emit((rows, cols), expression), (rows, cols)

    def text(self, is_saving: bool) -> str:
        """The module; its results are the last value negated, and others where they are saved."""
        name, dims = self._values[-1]
        results = [(self._emit(dims, f"negate({name})"), dims)]
        if is_saving:
            computed = [v for v in self._values if v[0] not in self._given]
            results += dict.fromkeys(v for v in computed if self._rng.random() < 0.6)
        body = "\n  ".join(self._lines)
        shapes = ", ".join(f"f32[{','.join(map(str, d))}]" for _, d in results)
        result = f"ROOT r = ({shapes}) tuple({', '.join(n for n, _ in results)})"
        return f"HloModule chain\n{_ADD}ENTRY main {{\n  {body}\n  {result}\n}}\n"
