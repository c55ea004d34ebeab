"""README.md says what the command line does: no option is missing there, none is made up."""

from __future__ import annotations

import re
from pathlib import Path

import click

from tpuc.cli import cli

TEXT = (Path(__file__).resolve().parents[2] / "README.md").read_text()
COMMANDS = TEXT[TEXT.index("## Commands") : TEXT.index("Inputs are `in0..`")]


def test_every_command_and_option_is_there() -> None:
    assert set(re.findall(r"tpuc ([a-z]+) ", COMMANDS)) == set(cli.commands)
    options = {
        name
        for command in cli.commands.values()
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for name in parameter.opts
    }
    assert set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", COMMANDS)) == options - {"--output"}


def test_the_python_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    found: dict[str, object] = {}
    exec(example.replace("examples/", f"{Path(__file__).resolve().parents[2]}/examples/"), found)
    layer, x = found["layer"], found["x"]
    assert callable(layer) and x is not None
