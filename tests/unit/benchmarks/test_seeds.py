"""Campaigns over seeds: what was stopped goes on, what died is counted, the page says where it ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.seeds import Ledger, Plan, run

WORKER = """
import json, os, sys
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    print(json.dumps({"begin": seed}), flush=True)
    if seed == 4:
        os._exit(3)
    print(json.dumps({"seed": seed, "kind": "ok", "detail": ""}), flush=True)
"""


def _records(folder: Path, ledger: Ledger) -> list[dict[str, Any]]:
    (folder / "few_seeds.py").write_text(WORKER)
    environment = {"PYTHONPATH": str(folder)}
    run(Plan("few_seeds", ledger.missing(), environment=environment), ledger.keep)
    return ledger.records


def test_a_campaign_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    first = Ledger(tmp_path, "run", range(2, 9))
    for seed in (2, 3, 6):
        first.keep({"seed": seed, "kind": "earlier", "detail": ""})
    with (tmp_path / "seeds.jsonl").open("a") as file:
        file.write('{"seed": 7, "ki')  # killed while it wrote
    ledger = Ledger(tmp_path, "run", range(2, 9))
    assert ledger.missing() == [range(4, 6), range(7, 9)]
    ends = {record["seed"]: record["kind"] for record in _records(tmp_path, ledger)}
    assert ends == {2: "earlier", 3: "earlier", 6: "earlier", 4: "crash", 5: "ok", 7: "ok", 8: "ok"}
    again = Ledger(tmp_path, "run", range(2, 9))
    assert again.missing() == [] and len(again.records) == 7
    assert Ledger(tmp_path, "other", range(2, 4)).missing() == [range(2, 4)]


def test_the_page_counts_ends_and_versions(tmp_path: Path) -> None:
    ledger = Ledger(None, "run", range(3))
    ledger.keep({"seed": 0, "kind": "ok"})
    ledger.keep({"seed": 1, "kind": "wrong"})
    text = ledger.page(" for v5e", "outcome")
    assert text.startswith("Seeds 0 to 2 for v5e, 2 programs: 2 at tpuc ")
    assert "| ok | 1 |" in text and "| wrong | 1 |" in text
