"""The instruction rows, a module per slot; importing this package fills the table.

Any file may be imported.
"""

from tpu_sim.isa.rows import eup, memory, misc, mxu, scalar, valu, xlu

__all__ = ["eup", "memory", "misc", "mxu", "scalar", "valu", "xlu"]
