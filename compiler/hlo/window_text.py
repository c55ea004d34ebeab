"""Windows, paddings and convolution labels as text, both ways. Malformed text: ValueError."""

from __future__ import annotations

import re

from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.shape_text import inside_braces


def decode_padding(text: str) -> tuple[tuple[int, int, int], ...]:
    """Read ``1_2_1x0_0`` as (low, high, interior) per dimension."""
    dims: list[tuple[int, int, int]] = []
    for part in text.split("x"):
        numbers = [int(n) for n in part.split("_")]
        if len(numbers) not in (2, 3):
            raise ValueError(f"want low_high or low_high_interior, found {part!r}")
        dims.append((numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 0))
    return tuple(dims)


def encode_padding(value: object) -> str:
    """Write (low, high, interior) per dimension; interiors only where there are some."""
    assert isinstance(value, tuple), value
    with_interior = any(interior for _, _, interior in value)
    return "x".join(f"{a}_{b}_{i}" if with_interior else f"{a}_{b}" for a, b, i in value)


_WINDOW_KEYS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")


def decode_window(text: str) -> Window:
    """Read ``{size=3x3 stride=2x2}``; what is left out has its default."""
    fields: dict[str, list[str]] = {}
    for part in inside_braces(text).split():
        key, _, value = part.partition("=")
        if key not in _WINDOW_KEYS:
            raise ValueError(f"want one of {', '.join(_WINDOW_KEYS)} in a window, found {key!r}")
        fields[key] = value.split("x")
    rank = len(fields.get("size", ()))
    for key, values in fields.items():
        if len(values) != rank:
            raise ValueError(f"window: size has {rank} dimensions, {key} has {len(values)}")
    return Window(tuple(_window_dim(fields, d) for d in range(rank)))


def _window_dim(fields: dict[str, list[str]], dim: int) -> WindowDim:
    low, mark, high = fields["pad"][dim].partition("_") if "pad" in fields else ("0", "_", "0")
    if not mark or "_" in high:
        raise ValueError(f"window: want pad=low_high of each dimension, found {fields['pad'][dim]}")
    return WindowDim(
        size=int(fields["size"][dim]),
        stride=int(fields["stride"][dim]) if "stride" in fields else 1,
        pad_low=int(low),
        pad_high=int(high),
        base_dilation=int(fields["lhs_dilate"][dim]) if "lhs_dilate" in fields else 1,
        window_dilation=int(fields["rhs_dilate"][dim]) if "rhs_dilate" in fields else 1,
        reversal=fields["rhs_reversal"][dim] == "1" if "rhs_reversal" in fields else False,
    )


def encode_window(value: object) -> str:
    """Write a window, leaving out what is default in every dimension."""
    assert isinstance(value, Window), value
    dims = value.dims
    parts = []
    if dims:
        parts.append("size=" + "x".join(str(d.size) for d in dims))
    if any(d.stride != 1 for d in dims):
        parts.append("stride=" + "x".join(str(d.stride) for d in dims))
    if any(d.pad_low or d.pad_high for d in dims):
        parts.append("pad=" + "x".join(f"{d.pad_low}_{d.pad_high}" for d in dims))
    if any(d.base_dilation != 1 for d in dims):
        parts.append("lhs_dilate=" + "x".join(str(d.base_dilation) for d in dims))
    if any(d.window_dilation != 1 for d in dims):
        parts.append("rhs_dilate=" + "x".join(str(d.window_dilation) for d in dims))
    if any(d.reversal for d in dims):
        parts.append("rhs_reversal=" + "x".join(str(int(d.reversal)) for d in dims))
    return "{" + " ".join(parts) + "}"


_LABELS = re.compile(r"([bf\d?]+)_([io\d?]+)->([bf\d?]+)")


def decode_dim_labels(text: str) -> ConvDims:
    """Read ``b01f_01io->b01f``."""
    found = _LABELS.fullmatch(text)
    if found is None:
        raise ValueError(f"want labels like b01f_01io->b01f, found {text!r}")
    lhs, rhs, out = found.groups()
    spatial = [str(d) for d in range(len(lhs.replace("?", "")) - 2)]
    for labels, ends in ((lhs, "bf"), (rhs, "io"), (out, "bf")):
        if sorted(labels.replace("?", "")) != sorted([*ends, *spatial]):
            raise ValueError(f"labels {labels!r} are not {ends} and {len(spatial)} spatial ones")
    return ConvDims.of_labels(lhs, rhs, out)


def encode_dim_labels(value: object) -> str:
    """Write the roles of the dimensions of lhs, rhs and result."""
    assert isinstance(value, ConvDims), value
    lhs = _labels({value.input_batch: "b", value.input_feature: "f"}, value.input_spatial)
    kernel_ends = {value.kernel_input_feature: "i", value.kernel_output_feature: "o"}
    rhs = _labels(kernel_ends, value.kernel_spatial)
    out = _labels({value.output_batch: "b", value.output_feature: "f"}, value.output_spatial)
    return f"{lhs}_{rhs}->{out}"


def _labels(ends: dict[int, str], spatial: tuple[int, ...]) -> str:
    by_dim = ends | {dim: str(number) for number, dim in enumerate(spatial)}
    return "".join(by_dim.get(dim, "?") for dim in range(max(by_dim) + 1))
