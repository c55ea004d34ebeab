"""One program on several targets side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compiler.diagnostics import UnsupportedError
from compiler.frontends.models import parse_model
from compiler.hlo.attributes import FrontendAttributes
from compiler.sharding.resizing import resize_mesh
from tests.support.command_line import Call

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples" / "slice" / "tp_mlp_train.hlo"


def test_the_mesh_is_as_large_as_the_target(call: Call) -> None:
    done = call("estimate", str(MODEL), "--target", "v5e,v5e:2x2,v5e:4x2", "--json")
    assert done.code == 0, done.err
    points = json.loads(done.out)["targets"]
    assert [point["target"] for point in points] == ["v5e", "v5e:2x2", "v5e:4x2"]
    assert [point["devices"] for point in points] == [1, 4, 8]
    shares = [point["communication_seconds"] / point["seconds"] for point in points]
    assert shares[0] == 0
    assert all(0 < share < 1 for share in shares[1:])


def test_the_table(call: Call) -> None:
    done = call("estimate", str(MODEL), "--target", "v5e, v5e:2x2")
    assert done.code == 0, done.err
    assert "efficiency" in done.out
    assert "v5e:2x2" in done.out
    refused = call("estimate", str(MODEL), "--target", "v5e,v5e:2x2", "--trace", "t.json")
    assert refused.code == 2


def test_efficiency_is_of_slices_of_one_chip(call: Call) -> None:
    done = call("estimate", str(MODEL), "--target", "v5e,v5e:2x2,v6e")
    rows = [line.split("│")[1:-1] for line in done.out.splitlines() if line.startswith("│")]
    efficiencies = {row[0].strip(): row[4].strip() for row in rows}
    assert efficiencies["v5e"] == "100.0%" and efficiencies["v5e:2x2"].endswith("%")
    assert efficiencies["v6e"] == "-"


def test_chips_that_stand_idle_are_told_of(call: Call, model: Path) -> None:
    out = call("estimate", model, "--target", "v5e:4x2").out
    assert "a program of one device: 7 other chips of the slice stand idle" in out
    assert "stand idle" not in call("estimate", model).out
    assert "stand idle" not in call("estimate", str(MODEL), "--target", "v5e:4x2").out


def mesh_of(count: int) -> str | None:
    module = parse_model(MODEL.read_text(), MODEL.name)
    resize_mesh(module, count)
    header = module.attrs["frontend_attributes"]
    assert isinstance(header, FrontendAttributes)
    assert module.attrs["num_partitions"] == count
    return header.get("xla.sdy.meshes")


def test_axes_grow_and_shrink() -> None:
    assert mesh_of(32) == 'mesh = #sdy.mesh<["x"=8, "y"=4]>'
    assert mesh_of(4) == 'mesh = #sdy.mesh<["x"=1, "y"=4]>'
    assert mesh_of(2) == 'mesh = #sdy.mesh<["x"=1, "y"=2]>'
    assert mesh_of(12) == 'mesh = #sdy.mesh<["x"=3, "y"=4]>'


def test_shardings_that_name_devices_are_of_one_size() -> None:
    text = (
        "HloModule m, num_partitions=4\nENTRY e {\n x = f32[8,6] parameter(0), "
        "sharding={devices=[4,1]<=[4]}\n ROOT r = f32[8,6] negate(x)\n}\n"
    )
    with pytest.raises(UnsupportedError, match="are no mesh's"):
        resize_mesh(parse_model(text, "m"), 8)


def test_exchanges_that_name_devices_are_of_one_size(call: Call) -> None:
    ring = str(MODEL.with_name("ring_attention.hlo"))
    done = call("estimate", ring, "--target", "v5e:4x2,v5e:4x4")
    assert done.code == 1
    assert "names its devices, so the program has one number of them" in done.err


@pytest.mark.parametrize("name", ["dp_train.hlo", "tp_mlp_train.hlo"])
def test_programs_with_and_without_regions_are_checked(call: Call, name: str) -> None:
    """Of regions of device-own shapes the evaluator runs what the devices do."""
    model = str(MODEL.with_name(name))
    done = call("run", model, "--target", "v5e:4x2", "--precision", "highest", "--check", "--json")
    assert done.code == 0, done.err
    errors = json.loads(done.out)["errors"]
    assert errors and all(error["ok"] for error in errors)


def test_replicas_are_checked(call: Call, tmp_path: Path) -> None:
    model = tmp_path / "m.hlo"
    model.write_text(
        "HloModule m, replica_count=4\nadd { a = f32[] parameter(0) b = f32[] parameter(1) "
        "ROOT c = f32[] add(a, b) }\nENTRY e {\n x = f32[8,128] parameter(0)\n"
        " ROOT r = f32[2,128] reduce-scatter(x), replica_groups={}, dimensions={0}, to_apply=add\n}\n"
    )
    done = call("run", model, "--target", "v5e:2x2", "--check", "--json")
    assert done.code == 0, done.err
    assert all(error["ok"] for error in json.loads(done.out)["errors"])


def test_texts_of_the_page_are_those_of_its_example(call: Call, tmp_path: Path) -> None:
    """docs/slice.md follows it from the global program to the program of the chips."""
    model = MODEL.with_name("sum_of_products.hlo")
    done = call(
        "compile", str(model), "--target", "v5e:2x2", "-o", str(tmp_path / "p.tpux"),
        "--dump-ir", str(tmp_path / "ir"), "--no-cache",
    )  # fmt: skip
    assert done.code == 0, done.err
    names = sorted(path.name for path in (tmp_path / "ir").glob("*.hlo"))
    assert [int(name[:2]) for name in names] == list(range(len(names)))  # passes count on
    assert names[5] == "05.after_spmd-partitioner.hlo"
    kernel = tmp_path / "ir" / "kernels" / "fusion.1" / "00.lowered.llo"
    paths = [*(tmp_path / "ir").glob("0[45]*.hlo"), kernel, tmp_path / "ir" / "program.tpu"]
    lines = {line.strip() for path in paths for line in path.read_text().splitlines()}
    page = (ROOT / "docs" / "slice.md").read_text()
    section = page[page.index("## One example") : page.index("## From a global")]
    quoted = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    assert quoted and set(quoted) <= lines


def test_opt_shows_the_module_that_each_device_of_a_slice_runs(call: Call) -> None:
    done = call("opt", str(MODEL), "--target", "v5e:4x2")
    assert done.code == 0
    assert "all-gather(" in done.out and "is_scheduled=true" in done.out
    ring = call("opt", str(MODEL.with_name("ring_attention.hlo")), "--target", "v5e:4x2")
    assert "collective-permute-start(" in ring.out
    refused = call("opt", str(MODEL), "--target", "v5e:4x4")
    assert refused.code == 1 and "a program of 8 devices" in refused.err


@pytest.mark.parametrize(
    "extra",
    [["--by", "line"], ["--by", "op"], ["--top", "3"], ["--sort", "hbm"], ["--csv", "k.csv"]],
)
@pytest.mark.parametrize("kind", [["--target", "v5e,v6e"], ["--fit"]])
def test_what_is_of_one_report_is_refused_beside_several(
    call: Call, model: Path, extra: list[str], kind: list[str]
) -> None:
    done = call("estimate", model, *kind, *extra)
    assert done.code == 2 and "with none of --trace" in done.err and extra[0] in done.err
