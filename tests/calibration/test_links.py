"""Public measurements of transfers between chips, beside estimates of the same."""

from __future__ import annotations

import pytest

import tpuc


def seconds(body: str, target: str, replicas: int) -> float:
    text = f"HloModule m, replica_count={replicas}\nENTRY e {{\n{body}\n}}\n"
    return tpuc.compile(text, target=target).estimate().seconds


@pytest.mark.parametrize(
    ("target", "start_us", "rate"), [("v5p:2x2x1", 4.55, 86.3e9), ("v6e:2x2", 2.29, 86.8e9)]
)
@pytest.mark.parametrize("size_mb", [0.0625, 16])
def test_permutes_between_two_chips(
    target: str, start_us: float, rate: float, size_mb: float
) -> None:
    """github.com/marin-community/marin, issue 6736."""
    rows = int(size_mb * 256)
    found = seconds(
        f"x = f32[{rows},1024] parameter(0)\n"
        f"ROOT r = f32[{rows},1024] collective-permute(x), source_target_pairs={{{{0,1}},{{1,0}}}}",
        target,
        4,
    )
    assert found == pytest.approx(start_us * 1e-6 + rows * 4096 / rate, rel=0.02)


@pytest.mark.parametrize(("links", "along"), [(2, 16), (1, 8)])
def test_a_gather_of_ten_megabytes_on_8x16(links: int, along: int) -> None:
    """About 95 % of 45 GB/s for each link: How to Scale Your Model, pull request 82."""
    ring, step, other = (16, 8, 8) if along == 16 else (8, 1, 16)
    groups = [
        [first * (1 if step == 8 else 8) + k * step for k in range(ring)] for first in range(other)
    ]
    text = "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"
    rows = 2560
    found = seconds(
        f"x = f32[{rows // ring},1024] parameter(0)\nROOT r = f32[{rows},1024] all-gather(x), "
        f"replica_groups={text}, dimensions={{0}}",
        "v5e:8x16",
        128,
    )
    rate = rows * 4096 * (ring - 1) / ring / links / found
    assert rate == pytest.approx(0.95 * 45e9, rel=0.05)
