"""``tpuc schema``: what the JSON of a report has in it, as a JSON schema."""

from __future__ import annotations

from importlib.resources import files

import click


def schema() -> None:
    """Print the schema."""
    click.echo((files("tpuc") / "report.schema.json").read_text(encoding="utf-8"), nl=False)
