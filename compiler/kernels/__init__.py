"""Kernel plans: what a kernel of windows holds in VMEM and which stages a grid step runs, decided once.

    plan        KernelPlan: windows, scratch, stages; its VMEM bytes
    planning    a fusion's body and windows -> KernelPlan
    preparation what a prepared operand of a dot is computed as
    printer     the plan as text, as ``--dump-ir`` shows it        verifier    its invariants

The window search judges candidates by their plans; emitters (`compiler.backend`) emit plans and allocate
nothing else.

Any file may be imported.
"""
