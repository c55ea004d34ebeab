"""Which of our kernels compute the matrix products of which of XLA's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.xla_tpu_comparison.ours import OurKernel, Ours
from benchmarks.xla_tpu_comparison.records import Product, Record, XlaKernel

PLAIN, FUSED, CONVOLUTION = "dot", "fused dot", "convolution"


@dataclass(frozen=True)
class Match:
    """Kernels of one record that do the same products: `count` calls on both sides."""

    record: str
    family: str
    kind: str
    names: tuple[str, ...]  # XLA's
    our_names: tuple[str, ...]
    count: int
    xla_cycles: int
    cycles: int
    causes: dict[str, int]
    note: str

    @property
    def ratio(self) -> float:
        """Our cycles over XLA's estimate."""
        return self.cycles / max(1, self.xla_cycles)

    @property
    def each(self) -> float:
        """XLA's cycles of one call."""
        return self.xla_cycles / max(1, self.count)


def match(record: Record, ours: Ours) -> tuple[list[Match], list[XlaKernel]]:
    """The matches of a record, and the kernels of XLA's with products that match none of ours.

    Kernels with equal products are one match when both sides run them equally often: which is
    which cannot be told. A kernel of two products matches our two.
    """
    left: dict[tuple[int, int], list[OurKernel]] = defaultdict(list)
    for part in ours.parts:
        if part.multiply_adds:
            left[part.multiply_adds, part.outputs].append(part)
    groups: dict[tuple[Product, ...], list[XlaKernel]] = defaultdict(list)
    for kernel in record.parts:
        if kernel.products:
            groups[tuple(sorted(kernel.products, key=_order))].append(kernel)
    matches: list[Match] = []
    missing: list[XlaKernel] = []
    for products, kernels in sorted(groups.items(), key=lambda item: len(item[0])):
        trips = sum(k.trips for k in kernels)
        found = [_taken(left, product, trips) for product in products]
        if all(found):
            matches.append(_matched(record, kernels, [k for part in found for k in part], trips))
        else:
            missing += kernels
    return matches or _alone(record, ours), missing if matches else _unless_alone(record, ours)


def _order(product: Product) -> tuple[int, int]:
    return (product.multiply_adds, product.outputs)


def _taken(
    left: dict[tuple[int, int], list[OurKernel]], product: Product, trips: int
) -> list[OurKernel]:
    """Our kernels for a product; empty unless they run `trips` times in all."""
    for count in (product.multiply_adds, product.padded):
        found = left.get((count, product.outputs), [])
        if found and sum(k.calls for k in found) == trips:
            return left.pop((count, product.outputs))
    return []


def _matched(
    record: Record, kernels: Sequence[XlaKernel], ours: Sequence[OurKernel], trips: int
) -> Match:
    causes: dict[str, int] = defaultdict(int)
    for part in ours:
        for name, cycles in part.causes.items():
            causes[name] += cycles
    return Match(
        record=record.name,
        family=record.family,
        kind=kind_of(record, kernels),
        names=tuple(k.name for k in kernels),
        our_names=tuple(k.name for k in ours),
        count=trips,
        xla_cycles=sum(k.cycles * k.trips for k in kernels),
        cycles=sum(k.cycles for k in ours),
        causes=dict(causes),
        note=ours[0].note,
    )


def kind_of(record: Record, kernels: Sequence[XlaKernel]) -> str:
    """The kind of a group by its dearest member; products of models with convolutions are those.

    To XLA every product is a convolution, so its kernels do not tell.
    """
    kernel = max(kernels, key=lambda k: k.cycles)
    if " convolution(" in record.text or any(p.is_windowed for p in kernel.products):
        return CONVOLUTION
    return PLAIN if kernel.is_plain else FUSED


def _alone(record: Record, ours: Ours) -> list[Match]:
    """The whole record, where it is nothing but one product that both sides do in their own way."""
    parts = [k for k in record.parts if k.products]
    if len(parts) != 1 or ours.error:
        return []
    kind = kind_of(record, parts)
    every = [k for k in ours.parts if k.multiply_adds] or list(ours.parts)
    if not every or (kind != CONVOLUTION and len(record.parts) > 1):
        return []
    whole = _matched(record, parts, every, 1)
    return [whole] if len(record.parts) == 1 or kind == CONVOLUTION else []


def _unless_alone(record: Record, ours: Ours) -> list[XlaKernel]:
    return [] if _alone(record, ours) else [k for k in record.parts if k.products]
