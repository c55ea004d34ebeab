"""Shardings of a whole program: from what it states to one on every instruction.

To be imported from outside: `constant_copies`, `exporter`, `importer`, `plan_cost`, `regions`, `statements`,
`turns`.
"""
