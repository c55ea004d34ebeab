"""Everything that the harness runs."""

from __future__ import annotations

from benchmarks.rule_fuzz.expanders import expander_subjects
from benchmarks.rule_fuzz.harness import Subject
from benchmarks.rule_fuzz.pairs import pair_subjects, sub_byte_subjects
from benchmarks.rule_fuzz.rules import composed_subjects, rule_subjects


def subjects() -> list[Subject]:
    """All rewrites, by kind."""
    rules = [*rule_subjects(), *composed_subjects()]
    return [*rules, *expander_subjects(), *pair_subjects(), *sub_byte_subjects()]
