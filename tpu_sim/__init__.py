"""The emulated TPU. `isa` says what programs are, `machine` what a core is; `interp` and `jit` execute;
`system` puts cores together. The compiler imports `isa` alone."""
