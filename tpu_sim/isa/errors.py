"""What users give can be wrong: the base of all errors that say so, and those of programs before they run."""

from __future__ import annotations


class TpucError(Exception):
    """What a user gave is wrong, or cannot be done here: the message says what, and what to do.

    Every error that tpuc means for its user is one; any other exception out of tpuc is a bug of tpuc."""


class ProgramError(TpucError):
    """A program breaks a static rule: `where` (kernel and block), and the `bundle` as text."""

    def __init__(self, message: str, where: str = "", bundle: str = "") -> None:
        self.message = message
        self.where = where
        self.bundle = bundle
        text = message
        if where:
            text = f"{where}: {text}"
        if bundle:
            text += f"\n  > {bundle}"
        super().__init__(text)


class HazardError(ProgramError):
    """A bundle uses a result, a unit or a queue entry before it is ready, or a slot twice."""


class EncodingError(ProgramError):
    """An operand does not fit its field, or bytes are not an instruction."""


class TargetError(ProgramError):
    """A program was made for another chip."""


class TpuxError(ProgramError):
    """A ``.tpux`` file is damaged, truncated, or not one at all."""


class AssemblyError(ProgramError):
    """A ``.tpu`` text does not parse; `where` is ``file:line:column``."""
