"""Derivatives of HLO computations: a rule for each opcode, and the modes (docs/autodiff.md).

To be imported from outside: `copying`, `custom`, `differentiate`, `loops`, `refusal`, `rule`,
`rule_names`, `scatter`, `values`.
"""
