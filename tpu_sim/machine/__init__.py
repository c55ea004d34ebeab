"""What both machines share: the state of a core, memories, transfers, faults, runs and their records, what
is kept on disk. Both machines, `system` and `runtime` may import any of it."""
