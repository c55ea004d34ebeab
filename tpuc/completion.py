"""What a shell completes option values with: targets, parameters of chips, names of passes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from tpu_sim.isa.chip_settings import WORDS


class _Bash(BashComplete):
    """Leaves the cursor behind the ``=`` of a key, where its value is to come."""

    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = BashComplete.source_template.replace(
        "COMPREPLY+=($value)",
        "COMPREPLY+=($value)\n            [[ $value == *= ]] && compopt -o nospace",
    )


add_completion_class(_Bash)


def files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """A model: the files there are."""
    return [CompletionItem(incomplete, type="file")]


def targets(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """A chip, the last one of several between commas; or a chip file."""
    from tpu_sim.isa.chips import chip_names

    return _last_of(incomplete, chip_names()) or files(context, parameter, incomplete)


def settings(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """What of a chip may be set, with the sign that its value stands behind."""
    from tpu_sim.isa.chips import parameter_names

    if "=" in incomplete:
        return []
    names = dict.fromkeys((*WORDS, *parameter_names()))
    return [CompletionItem(f"{name}=") for name in names if name.startswith(incomplete)]


def passes(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """A pass, the last one of several between commas: of HLO, or of LLO where the model is."""
    names: Iterable[str]
    words = (
        context.params.get("model"),
        *context.args,
    )  # arguments before an option without its value
    if any(str(word).endswith(".llo") for word in words):
        from compiler.llo.passes.pipeline import LLO_PIPELINE

        names = LLO_PIPELINE
    else:
        from compiler.passes.pipeline import PASSES

        names = PASSES
    return _last_of(incomplete, names)


def _last_of(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return [
        CompletionItem(f"{before}{comma}{name}")
        for name in names
        if name.startswith(last) and name not in given
    ]
