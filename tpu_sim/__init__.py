"""The emulated TPU. `isa` says what programs are, `machine` what a core is; `interp` and `jit` execute;
`system` puts cores together.

Any file may be imported; by the compiler those of `isa` alone.
"""
