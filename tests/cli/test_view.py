"""``tpuc view`` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import Call
from tpuc.view.page_file import read_part


def test_a_page_of_an_estimate_and_of_a_run(call: Call, model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = call("view", model, "-o", page)
    assert done.code == 0 and "open it in a browser" in done.out
    main = read_part(page.read_text(), "0.main")
    assert isinstance(main, dict) and main["is_estimate"] and main["cycles"] > 0
    lines = main["lines"]
    assert isinstance(lines, dict) and lines and main["has_own_lines"]
    assert all(line.startswith(f"{model}:") and "(" in text for line, text in lines.items())
    assert call("view", model, "-o", page, "--run").code == 0
    again = read_part(page.read_text(), "0.main")
    assert isinstance(again, dict) and not again["is_estimate"]
    assert again["cycles"] == main["cycles"]


def test_two_targets_two_models_and_a_page_made_before(
    call: Call, model: Path, tmp_path: Path
) -> None:
    both, old, again = (tmp_path / name for name in ("both.html", "old.html", "again.html"))
    assert call("view", model, "--target", "v5e", "--target", "v6e", "-o", both).code == 0
    text = both.read_text()
    mains = [read_part(text, f"{number}.main") for number in (0, 1)]
    assert [m["target"] for m in mains] == ["v5e", "v6e"]  # type: ignore[index]
    assert call("view", model, "-o", old).code == 0
    assert call("view", old, model, "--target", "v4", "-o", again).code == 0
    text = again.read_text()
    assert read_part(text, "0.passes") == read_part(old.read_text(), "0.passes")
    assert read_part(text, "0.main") == read_part(old.read_text(), "0.main")
    assert read_part(text, "1.main")["target"] == "v4"  # type: ignore[index]
    other = tmp_path / "other.hlo"
    other.write_text(model.read_text().replace("add(x, x)", "multiply(x, x)"))
    assert call("view", model, other, "-o", both).code == 0
    assert read_part(both.read_text(), "1.main")["model"] == "other"  # type: ignore[index]


def test_settings_change_each_target_and_stand_in_the_page(
    call: Call, model: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert call("view", model, "--set", "vmem=32MiB", "-o", page).code == 0
    assert read_part(page.read_text(), "0.main")["target"] == "v5e{vmem=32MiB}"  # type: ignore[index]
    targets = ("--target", "v5e", "--target", "v6e")
    assert call("view", model, *targets, "--set", "vmem=32MiB", "-o", page).code == 0
    mains = [read_part(page.read_text(), f"{number}.main") for number in (0, 1)]
    assert [m["target"] for m in mains] == ["v5e{vmem=32MiB}", "v6e{vmem=32MiB}"]  # type: ignore[index]
    assert call("view", model, "--set", "nope=3", "-o", page).code == 2


def test_a_slice_has_chips_and_links(call: Call, tmp_path: Path) -> None:
    page = tmp_path / "slice.html"
    example = Path(__file__).resolve().parents[2] / "examples" / "slice" / "tp_mlp_train.hlo"
    assert call("view", example, "--target", "v5e:2x2", "-o", page).code == 1  # of eight devices
    assert call("view", example, "--target", "v5e:4x2", "-o", page).code == 0
    found = read_part(page.read_text(), "0.main")["slice"]  # type: ignore[index]
    assert found["size"] == [4, 2, 1] and len(found["chips"]) == len(found["core_cycles"]) == 8
    assert found["links"] and all(0 < row[3] <= found["room_bytes"] for row in found["links"])
    assert {"kind", "group"} <= set(found["collectives"][0])


def test_a_program_of_one_device_leaves_the_other_chips_of_a_slice_idle(
    call: Call, model: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert call("view", model, "--target", "v5e:2x2", "-o", page).code == 0
    main = read_part(page.read_text(), "0.main")
    assert isinstance(main, dict)
    found = main["slice"]
    assert found["size"] == [2, 2, 1] and len(found["chips"]) == 4
    assert found["core_cycles"] == [main["cycles"], 0, 0, 0] and not found["links"]
    assert call("view", model, "-o", page).code == 0
    alone = read_part(page.read_text(), "0.main")
    assert isinstance(alone, dict) and alone["slice"] is None


def test_what_it_refuses(call: Call, model: Path, program: Path, tmp_path: Path) -> None:
    assert call("view", program).code == 2
    assert call("view", model, "--inputs", "x.npz").code == 2
    assert call("view", model, "-o", tmp_path / "no" / "page.html").code == 1
    assert call("view", tmp_path / "missing.hlo").code == 1
    assert call("view", model, "--target", "v99").code == 2
    assert call("view", model, model, model).code == 2
    page = tmp_path / "page.html"
    page.write_text("<html></html>")
    assert "no page of tpuc view" in call("view", page, model, "-o", tmp_path / "x.html").err
    assert call("view", page, "-o", page).code == 2
    assert call("view", tmp_path / "none.html", model, "-o", tmp_path / "x.html").code == 1


@pytest.mark.parametrize("command", ["view", "debug"])
def test_an_error_shows_the_instruction_as_the_text_has_it(
    call: Call, tmp_path: Path, command: str
) -> None:
    """Lines of the text stand for metadata that it does not have: they are no part of it."""
    path = tmp_path / "bad.hlo"
    path.write_text(
        "HloModule m\nENTRY e {\n  x = f32[8] parameter(0)\n  y = f32[4] parameter(1)\n"
        "  ROOT z = f32[8] add(x, y)\n}\n"
    )
    refused = call(command, path)
    assert refused.code == 1 and "bad.hlo:5:3" in refused.err and "metadata" not in refused.err
