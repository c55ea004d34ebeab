"""Lines of the model's own text, for a model that does not say which lines of a program it comes from."""

from __future__ import annotations

from collections.abc import Iterable

from tpu_sim.isa.origins import Origin

SAID = (
    "the model does not say where its operations come from: lines are those of its own text;\n"
    "from JAX: lowered.as_text(debug_info=True), or the HLO of lowered.compile().as_text()"
)


def text_file(model: str) -> str:
    """What the file of the model's text is called in places."""
    return "<stdin>" if model == "-" else model


def are_own_lines(origins: Iterable[Origin], file: str) -> bool:
    """Whether what is known of origins are lines of the model's text, a file of that name."""
    return {origin.file for origin in origins if origin.file} == {file}
