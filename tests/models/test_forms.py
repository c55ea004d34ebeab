"""The same model from HLO text and from StableHLO costs the same; `benchmarks.forms` does it for a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import forms
from compiler.driver import CompileOptions
from runtime.api import compile as compile_model

DATA = Path(__file__).resolve().parents[1] / "data"
MODELS = {paths[0].stem: paths for paths in forms.models(DATA, "*")}
MOST = 0.02


@pytest.mark.parametrize("name", sorted(MODELS))
def test_both_forms_cost_the_same(name: str) -> None:
    made: list[forms.Form] = []
    for path in MODELS[name]:
        report = compile_model(path, options=CompileOptions()).estimate()
        made.append(forms.Form(report.cycles, report.hbm_bytes))
    assert forms.distance(made) <= MOST, forms.row(name, made)


def test_what_is_refused_and_what_is_apart_is_said(tmp_path: Path) -> None:
    good = (DATA / "mandelbrot_while_tiny.hlo").read_text()
    (tmp_path / "m.hlo").write_text(good)
    (tmp_path / "m.mlir").write_text("module @m {\n")
    (tmp_path / "alone.hlo").write_text(good)
    (found,) = forms.models(tmp_path, "*")
    refused = forms.estimate(found[1], "v5e", 60)
    assert "error" in refused.error
    assert forms.row("m", [forms.Form(100, 10), refused])[1].startswith(".mlir: error")
    assert forms.distance([forms.Form(100), forms.Form(103)]) > MOST
    assert forms.row("m", [forms.Form(100, 10), forms.Form(150, 10)])[2] == "1.500"
