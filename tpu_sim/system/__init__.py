"""Cores under one clock: the machine that runs a program (`machine`), a slice of them (`slice`), and cores
that go bundle by bundle (`stepper`).

To be imported from outside: `machine`, `slice`, `stepper`.
"""
