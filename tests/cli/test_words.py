"""What messages of the command line say: shown whole, near to what was meant, and first what matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.diagnostics import SourceSpan, visible
from tests.support.command_line import Call
from tpuc.arrays import Difference
from tpuc.commands.terminal import Lines
from tpuc.tables import print_differences

_UNSEEN = "\0\x1b[31m\x07"


def test_control_characters_of_a_file_do_not_reach_the_terminal(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text("HloModule m\n" + _UNSEEN * 200)
    done = call("estimate", path)
    assert done.code == 1 and "\\x00\\x1b[31m\\x07" in done.err
    assert done.err.replace("\n", "").isprintable()
    assert max(map(len, done.err.splitlines()[2:])) <= 164


def test_a_name_in_a_message_is_shown_as_well(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text(f'func.func @main() {{\n  "a.{_UNSEEN}"() : () -> ()\n  return\n}}\n')
    done = call("estimate", path)
    assert done.code == 1 and done.err.replace("\n", "").isprintable()


@pytest.mark.parametrize("column", [1, 4, 100, 500])
def test_the_caret_stands_under_its_character(column: int) -> None:
    text = "a\tb" + _UNSEEN * 100 + "é" * 50
    _, line, caret = SourceSpan("f", 1, column, text).render().splitlines()
    assert len(line) <= 164
    assert line[caret.index("^") :].startswith(visible(text[column - 1].replace("\t", " ")))


def test_a_text_that_can_be_shown_is_left_alone() -> None:
    assert visible("größer, 大\n  at x") == "größer, 大\n  at x"
    assert visible("a\udc80\u202eb") == "a\\udc80\\u202eb"


@pytest.mark.parametrize("option", ["--inputs", "--expect"])
@pytest.mark.parametrize("command", ["run", "eval"])
def test_a_file_that_is_missing_is_said_before_the_model_is_compiled(
    command: str, option: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    for place in ("run.compiled_or_loaded", "evaluate.parsed"):
        monkeypatch.setattr(f"tpuc.commands.{place}", no_memory)
    path = tmp_path / "none.npz"
    done = call(command, "model.hlo", option, path)
    assert (done.code, done.err) == (
        1, f"error: cannot read {path}: No such file or directory\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "near"), [("V5E", "v5e? "), ("v5", "v5e or v5p? "), ("V7X", "v7x? "), ("zz", "")]
)
def test_an_unknown_chip_is_told_which_is_near(
    target: str, near: str, call: Call, model: Path
) -> None:
    done = call("estimate", model, "--target", target)
    hint = f"did you mean {near}" if near else ""
    assert done.code == 2 and f"unknown chip '{target}': {hint}want one of 7x" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["estimate", "MODEL", "--window", "d=0,0,0"], "want NAME=bm,bk,bn in elements"),
        (["opt", "MODEL", "--passes", "none,fusion"], "goes with no other name"),
        (["run", "MODEL", "--skip", "fusion,none"], "goes with no other name"),
        (["eval", "MODEL", "--tol", "x"], "'x': want a number"),
        (["eval", "MODEL", "--seed", "1.5"], "'1.5': want a whole number"),
        (["eval", "MODEL", "--input", "x"], "Did you mean '--inputs'?"),
    ],
)
def test_a_wrong_word_is_a_usage_error(
    words: list[str], said: str, call: Call, model: Path
) -> None:
    done = call(*(model if word == "MODEL" else word for word in words))
    assert done.code == 2 and said in done.err


def test_an_option_that_is_like_none_gets_no_advice(call: Call, model: Path) -> None:
    done = call("eval", model, "--bogus")
    assert done.code == 2 and "No such option '--bogus'." in done.err
    assert "Did you mean" not in done.err


def test_a_file_is_no_program_by_its_name(call: Call, program: Path, tmp_path: Path) -> None:
    path = tmp_path / "random.tpux"
    path.write_bytes(bytes(range(256)))
    done = call("eval", path)
    assert done.code == 1 and f"{path}: not a .tpux file" in done.err
    assert "cannot read" in call("eval", tmp_path / "none.tpux").err
    done = call("eval", program)
    assert done.code == 2 and "is a compiled program, not a model" in done.err


def test_outputs_that_are_compared_come_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    print_differences([Difference(i, e, e) for i, e in enumerate([0.1, 0.0, 0.3, 0.2])], 1.0)
    out = capsys.readouterr().out
    assert sorted(range(4), key=lambda i: out.index(f"out{i}")) == [0, 1, 2, 3]


def test_a_syntax_error_names_few_alternatives(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "cut.mlir"
    path.write_text(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = stablehlo.add %x, "
    )
    first = call("run", path).err.splitlines()[0]
    assert "a value (`%name`)" in first and first.endswith(", ..")
    assert first.partition("expected ")[2].count(", ") == 5


def test_long_work_says_now_and_then_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 10.0, 31.0, 40.0, 70.0, 120.0])
    lines = Lines("estimated", 5, lambda: next(times))
    for _ in range(5):
        lines.advance()
    assert capsys.readouterr().err == "estimated 2 of 5\nestimated 4 of 5\n"


def test_what_is_wrong_in_the_model_stays_with_the_model(call: Call, model: Path) -> None:
    assert call("estimate", model, "--window", "nothing=8,8,8").code == 1
