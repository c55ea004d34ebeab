"""`np.fft` of traced arrays: HLO's transforms along last axes, with NumPy's lengths and norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.frontends.numpy.errors import BadTypeError, BadValueError
from compiler.frontends.numpy.ops import traced
from compiler.frontends.numpy.tracer import Rule, Trace

_FORWARD = ("FFT", "RFFT")


def _sized(x: Any, count: int) -> Any:
    """The last axis cut, or filled with zeros, to `count` elements."""
    missing = count - x.shape[-1]
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)]) if missing > 0 else x[..., :count]


_SHARES: dict[str | None, float] = {None: 0.0, "backward": 0.0, "ortho": 0.5, "forward": 1.0}
"""For each norm, the power of the length that a forward transform divides by; an inverse one divides
by what is left to the first power."""


def _share(norm: str | None) -> float:
    if norm not in _SHARES:
        raise BadValueError(f"np.fft: norm={norm!r}, want 'backward', 'ortho' or 'forward'")
    return _SHARES[norm]


def _scale(kind: str, norm: str | None, count: int) -> float:
    """What HLO's result is multiplied with: its inverse transforms divide by `count`, as "backward"."""
    share = _share(norm)
    return float(count**-share if kind in _FORWARD else count**share)


def _along(trace: Trace, kind: str, a: Any, n: int | None, axis: int, norm: str | None) -> Any:
    """One transform along one axis; real ones take and give half of the spectrum."""
    x: Any = np.moveaxis(traced(trace, a), axis, -1)
    if kind == "RFFT" and x.dtype.kind == "c":
        raise BadTypeError(
            f"np.fft.rfft of {x!r}: want real numbers; np.fft.fft is of complex ones"
        )
    want = np.float32 if kind == "RFFT" else np.complex64
    length = x.shape[-1] if n is None else n
    if kind == "IRFFT":
        length = 2 * (x.shape[-1] - 1) if n is None else n
        x = _sized(x.astype(want), length // 2 + 1)
    else:
        x = _sized(x.astype(want), length)
    if length < 1:
        raise BadValueError(f"np.fft: a transform of {length} elements")
    attrs: dict[str, object] = {"fft_type": kind, "fft_length": (length,)}
    made: Any = type(x)(trace, trace.builder.instruction("fft", (x.instr,), attrs))
    factor = _scale(kind, norm, length)
    made = made if factor == 1 else made * np.float32(factor)
    return np.moveaxis(made, -1, axis)


def _one(kind: str) -> Rule:
    def rule(
        trace: Trace, a: Any, n: int | None = None, axis: int = -1, norm: str | None = None
    ) -> Any:
        return _along(trace, kind, a, n, axis, norm)

    return rule


def _many(kind: str, default_axes: tuple[int, ...] | None) -> Rule:
    """A transform along several axes: the real part of it along the last one of them."""
    inner = {"RFFT": "FFT", "IRFFT": "IFFT"}.get(kind, kind)

    def rule(
        trace: Trace,
        a: Any,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = default_axes,
        norm: str | None = None,
    ) -> Any:
        x: Any = traced(trace, a)
        count = x.ndim if s is None else len(s)
        chosen = list(range(x.ndim - count, x.ndim)) if axes is None else list(axes)
        sizes: list[int | None] = [None] * len(chosen) if s is None else list(s)
        pairs = list(zip(chosen, sizes, strict=True))
        if kind == "RFFT":
            x = _along(trace, kind, x, pairs[-1][1], pairs[-1][0], norm)
            pairs = pairs[:-1]
        for axis, size in pairs[:-1] if kind == "IRFFT" else pairs:
            x = _along(trace, inner, x, size, axis, norm)
        if kind == "IRFFT":
            x = _along(trace, kind, x, pairs[-1][1], pairs[-1][0], norm)
        return x

    return rule


def _shift(direction: int) -> Rule:
    def rule(trace: Trace, x: Any, axes: int | Sequence[int] | None = None) -> Any:
        value: Any = traced(trace, x)
        chosen = range(value.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
        for axis in chosen:
            half = value.shape[axis] // 2
            value = np.roll(value, half if direction > 0 else -half, axis)
        return value

    return rule


def _hfft(
    trace: Trace, a: Any, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Any:
    x: Any = np.conj(traced(trace, a))
    count = 2 * (x.shape[axis] - 1) if n is None else n
    plain: Any = _along(trace, "IRFFT", x, n, axis, None)
    return plain * np.float32(count ** (1 - _share(norm)))


def _ihfft(
    trace: Trace, a: Any, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Any:
    x: Any = traced(trace, a)
    count = x.shape[axis] if n is None else n
    plain: Any = np.conj(_along(trace, "RFFT", x, n, axis, None))
    return plain * np.float32(count ** (_share(norm) - 1))


FFT_FUNCTIONS: dict[object, Rule] = {
    np.fft.fft: _one("FFT"),
    np.fft.fft2: _many("FFT", (-2, -1)),
    np.fft.fftn: _many("FFT", None),
    np.fft.fftshift: _shift(1),
    np.fft.hfft: _hfft,
    np.fft.ifft: _one("IFFT"),
    np.fft.ifft2: _many("IFFT", (-2, -1)),
    np.fft.ifftn: _many("IFFT", None),
    np.fft.ifftshift: _shift(-1),
    np.fft.ihfft: _ihfft,
    np.fft.irfft: _one("IRFFT"),
    np.fft.irfft2: _many("IRFFT", (-2, -1)),
    np.fft.irfftn: _many("IRFFT", None),
    np.fft.rfft: _one("RFFT"),
    np.fft.rfft2: _many("RFFT", (-2, -1)),
    np.fft.rfftn: _many("RFFT", None),
}
