"""In which order of dimensions an array lies where a program meets the host.

    f32[32,224,224,3]    descending, 3 of 128 lanes: 822 MB    batch, channel, row, column: 22 MB

The host's arrays have no layout; a device array should not take more memory than it must, nor a program
read it at a thirtieth of HBM's rate. So an array whose last dimensions are short lies with long ones there.
The order follows from element type and dimensions alone, so that programs that hand arrays on to one another
agree about it; but for tables, of which slices are looked up by index: such an array that comes in another
order is laid out anew by the runtime.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.dtypes import DType
from compiler.hlo.shape import ArrayShape

Dims = tuple[int, ...]
_LEAST_GAIN = 3.9
"""How many times its bytes an array must take in descending order to lie in another one."""
_LEAST_SAVED_BYTES = 1 << 19
"""Of padding, half a MiB: below, arguments are left in the order in which they are said (assumed)."""


@lru_cache(1 << 12)
def port_order(dtype: DType, dims: Dims, major: Dims = ()) -> Dims:
    """The dimensions of a parameter or result of one plane type from major to minor.

    Descending where that wastes little. Of equal orders, one with rows in its tiles, and whose
    minor dimensions come last. The dimensions `major` are kept outside of the others.
    """
    now = byte_size(ArrayShape(dtype, dims))
    rest = [d for d in range(len(dims)) if d not in major]
    orders = [_with_minor((*major, *rest), *pair) for pair in permutations(rest, 2)]
    if len(rest) == 1 and major:
        orders = [(*major, *rest)]  # columns that are looked up are rows
    if not orders:
        return tuple(range(len(dims)))
    sizes = {order: _size(dtype, dims, order) for order in orders}
    best = min(orders, key=lambda o: (sizes[o], dims[o[-2]] == 1, -o[-1], -o[-2]))
    saves = now - sizes[best]
    is_worth_it = saves >= _LEAST_SAVED_BYTES and now >= _LEAST_GAIN * sizes[best]
    return best if is_worth_it else tuple(range(len(dims)))


def _size(dtype: DType, dims: Dims, order: Dims) -> int:
    return byte_size(ArrayShape(dtype, tuple(dims[d] for d in order)))


def _with_minor(order: Dims, second: int, minor: int) -> Dims:
    return (*(d for d in order if d not in (second, minor)), second, minor)
