"""What both machines share: the state of a core, memories, transfers, faults, runs and their records,
what is kept on disk.

Any file may be imported.
"""
