"""Collectives have no derivatives: programs are differentiated before they are partitioned."""

from __future__ import annotations

from compiler.autodiff.rule import Constant, DerivativeRule, Refused
from compiler.hlo.opcodes import Trait, with_trait

_NUMBERS = "it is a device's number"
_PARTITIONED = "differentiate the program before it is partitioned"

COLLECTIVE_RULES: dict[str, DerivativeRule] = {
    **{name: Refused(_PARTITIONED) for name in with_trait(Trait.COLLECTIVE)},
    "partition-id": Constant(_NUMBERS),
    "replica-id": Constant(_NUMBERS),
}
