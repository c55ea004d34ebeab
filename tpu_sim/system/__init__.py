"""Cores under one clock: the machine that runs a program (`machine`) and a slice of them (`slice`), for
`runtime` and `tpuc`."""
