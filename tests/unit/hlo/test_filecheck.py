"""The test harness itself: each directive passes and fails where it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.filecheck import (
    FileCheckError,
    match,
    parse_checks,
    run_file,
    run_lines,
    updated,
)

OUTPUT = "alpha\n  one = add(x,  y)\n  two = mul(one, x)\nbeta\n  one = sub(x, y)\n"


def _match(*checks: str) -> None:
    match(OUTPUT, parse_checks("\n".join(f"// {c}" for c in checks)))


@pytest.mark.parametrize(
    "checks",
    [
        ("CHECK: add(x, y)", "CHECK: sub"),
        ("CHECK: one = add", "CHECK-NEXT: two", "CHECK-SAME: x)"),
        ("CHECK-LABEL: beta", "CHECK-NOT: add", "CHECK: sub"),
        ("CHECK: add", "CHECK-NOT: add", "CHECK: beta"),
        ("CHECK: [[NAME:\\w+]] = add", "CHECK: mul([[NAME]], x)"),
        ("CHECK: {{o.e}} = {{add|sub}}(x",),
        ("CHECK-LABEL: alpha", "CHECK: one", "CHECK-NOT: sub", "CHECK-LABEL: beta", "CHECK: sub"),
    ],
)
def test_satisfied(checks: tuple[str, ...]) -> None:
    _match(*checks)


@pytest.mark.parametrize(
    ("checks", "problem"),
    [
        (("CHECK: sub", "CHECK: add"), "is not found"),
        (("CHECK: add", "CHECK-NEXT: beta"), "not on the next line"),
        (("CHECK: add", "CHECK-SAME: mul"), "not on the same line"),
        (("CHECK: alpha", "CHECK-NOT: mul", "CHECK: beta"), "does occur"),
        (("CHECK: alpha", "CHECK-NOT: sub"), "does occur"),
        (("CHECK-LABEL: gamma",), "is not found"),
        (("CHECK-LABEL: alpha", "CHECK: sub", "CHECK-LABEL: beta"), "is not found"),
        (("CHECK: [[NAME:\\w+]] = mul", "CHECK: [[NAME]] = sub"), "is not found"),
        (("CHECK: [[NAME]]",), "not bound"),
    ],
)
def test_violated(checks: tuple[str, ...], problem: str) -> None:
    with pytest.raises(FileCheckError, match=problem):
        _match(*checks)


def test_run_lines_are_split_like_a_shell_does() -> None:
    text = "// RUN: opt %s --passes=a,b\n; RUN: parse '%s x'\n"
    assert run_lines(text) == [["opt", "%s", "--passes=a,b"], ["parse", "%s x"]]


def test_update_rewrites_only_what_fails() -> None:
    text = "// CHECK: alpha\n// CHECK: two = mul(one, z)\n// CHECK-NOT: gamma\n"
    want = "// CHECK: alpha\n// CHECK: two = mul(one, x)\n// CHECK-NOT: gamma\n"
    assert updated(text, OUTPUT) == want


def test_update_writes_the_checks_of_a_file_without_any() -> None:
    text = updated("// RUN: parse %s\n", OUTPUT)
    match(OUTPUT, parse_checks(text))
    assert len(parse_checks(text)) == len(OUTPUT.split("\n")) - OUTPUT.endswith("\n")


def test_update_writes_checks_of_lines_after_empty_ones() -> None:
    output = OUTPUT.replace("beta", "\nbeta")
    text = updated("// RUN: parse %s\n", output)
    match(output, parse_checks(text))
    assert "// CHECK: beta" in text


def test_a_file_without_checks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.hlo"
    path.write_text("// RUN: parse %s\nENTRY e { x = f32[] parameter(0) }\n")
    with pytest.raises(AssertionError, match="cannot fail"):
        run_file(path)
