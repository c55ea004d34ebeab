"""Byte for byte what XLA prints: kept texts, and XLA itself where jaxlib is installed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from compiler.hlo.parser import parse_module
from compiler.hlo.sharding_text import parse_sharding
from compiler.hlo.styled_printer import STYLES, print_styled
from tpuc.cli import cli

DATA = Path(__file__).parents[2] / "data"
FORMS = sorted((DATA / "text_forms").glob("*.hlo"))
MODELS = sorted(DATA.glob("*.hlo"))


def by_xla(text: str, style: str) -> str:
    xla = pytest.importorskip("jaxlib._hlo")
    options = xla.HloPrintOptions()
    if style == "short":
        options = xla.HloPrintOptions.short_parsable()
    printed: str = xla.hlo_module_from_text(text).to_string(options)
    return printed


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_every_form_prints_as_kept(path: Path, style: str) -> None:
    kept = path.with_suffix(f".{style}.txt").read_text()
    assert print_styled(parse_module(path.read_text()), STYLES[style]) == kept


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("path", [*FORMS, *MODELS], ids=lambda path: path.stem)
def test_xla_prints_the_same(path: Path, style: str) -> None:
    text = path.read_text()
    assert print_styled(parse_module(text), STYLES[style]) == by_xla(text, style)


@pytest.mark.parametrize("path", [*FORMS, *MODELS], ids=lambda path: path.stem)
def test_short_texts_read_back_to_themselves(path: Path) -> None:
    once = print_styled(parse_module(path.read_text()), STYLES["short"])
    assert print_styled(parse_module(once), STYLES["short"]) == once


def test_the_command_prints_in_a_style(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text("ENTRY e { x = f32[2] parameter(0) ROOT y = negate(x) }")
    found = CliRunner().invoke(cli, ["opt", str(path), "--passes", "none", "--style", "short"])
    assert found.exit_code == 0
    assert found.output == (
        "HloModule module_e, entry_computation_layout={(f32[2]{0})->f32[2]{0}}\n\n"
        "ENTRY e {\n  x = f32[2]{0} parameter(0)\n  ROOT y = f32[2]{0} negate(x)\n}\n\n"
    )


def test_elided_constants_get_made_up_values_and_a_warning() -> None:
    text = "ENTRY e { x = s32[12] constant({...}) }"
    with pytest.warns(UserWarning, match=r"%x: values are made up \(line 1\)"):
        module = parse_module(text)
    assert "constant({...})" in print_styled(module, STYLES["default"])
    assert "constant({0, 1, 2, 3, 4, 5, " in print_styled(module, STYLES["short"])


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("{devices=[4,2]<=[2,2,2]T(0,1,2)}", "{devices=[4,2]<=[8]}"),
        ("{devices=[4,2]<=[1,8,1]T(2,1,0)}", "{devices=[4,2]<=[8]}"),
        ("{devices=[1,8]<=[8] last_tile_dim_replicate}", "{replicated}"),
        ("{devices=[1,8]<=[8] last_tile_dims={manual}}", "{manual}"),
        (
            "{devices=[2,2,2]<=[8] last_tile_dims={manual, manual}}",
            "{devices=[2,4]<=[8] last_tile_dims={manual}}",
        ),
        (
            "{devices=[2,4]1,0,7,6,5,4,3,2 last_tile_dim_replicate}",
            "{devices=[2,4]0,1,6,7,2,3,4,5 last_tile_dim_replicate}",
        ),
    ],
)
def test_shardings_have_one_normal_form(text: str, normal: str) -> None:
    assert parse_sharding(text).text() == normal
    assert parse_sharding(text).for_leaves(2).text() == f"{{{normal}, {normal}}}"
    module = f"ENTRY e {{ x = f32[8,8,8] parameter(0), sharding={text} }}"
    found = re.search(r"sharding=(.*)", by_xla(module, "default"))
    assert found is not None
    assert found[1] == normal


@pytest.mark.parametrize(
    "text",
    ["{devices=[2,2]<=[8]}", "{devices=[2]0}", "{sideways}", "{devices=[2,4]<=[8]T(1,0)}", "{2}"],
)
def test_malformed_shardings_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"want|unknown|fit"):
        parse_sharding(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{mesh['x'=2] [{'y'}]}", "no axis 'y'"),
        ("{mesh['x'=2], sideways}", "want"),
        ("{mesh['x'=2], [{'x'}], odd={'x'}}", "unknown word"),
        ("{mesh[x=2] []}", "in quotes"),
        ("{mesh['x'=2,'y'=2], device_ids=([2,2]T(1,1)), []}", "does not order"),
        ("{mesh['x'=2], [{'x'}", "early"),
    ],
)
def test_malformed_mesh_shardings_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_sharding(text)


def test_minus_zero_is_kept_although_xla_prints_zero() -> None:
    module = parse_module("ENTRY e { ROOT x = f32[2] constant({-0, -0.0}) }")
    literal = module.entry.root_instruction.attrs["literal"]
    assert isinstance(literal, np.ndarray)
    assert np.signbit(literal).all()
    assert "constant({0, -0})" in print_styled(module, STYLES["default"])


def test_recovery_tables_that_are_none_are_refused() -> None:
    module = parse_module(
        "HloModule m, origin_recovery_table={ {x} : {y} }\nENTRY e { x = f32[] parameter(0) }"
    )
    with pytest.raises(ValueError, match=r"want \{value\} : \{value\}"):
        print_styled(module, STYLES["default"])
