"""``tpuc targets``: chips and slices."""

from __future__ import annotations

import json

import click

from tpuc import slice_table, tables
from tpuc.commands.models import named_topology


def targets(chip: str | None, as_json: bool) -> None:
    """``tpuc targets``: the chips; one chip's parameters, or what a slice is, with provenance."""
    topology = named_topology(chip) if chip is not None else None
    if topology is not None and chip is not None and topology.chip_count > 1:
        if as_json:
            click.echo(json.dumps(slice_table.slice_as_json(topology), indent=1))
        else:
            tables.print_table(slice_table.slice_table(topology, chip))
    elif as_json:
        click.echo(json.dumps(tables.chips_as_json(chip), indent=1))
    else:
        tables.print_chips(chip)
