"""From scheduled HLO to TPU programs: windows, LLO, bundles, registers.

The driver imports `lower_module`, passes what says what a kernel can do, holds or costs.

To be imported from outside: `custom_places`, `element_cut`, `exchange`, `kernel_library`,
`forks`, `kernel_options`, `kept_kernels`, `loop_kernels`, `lower_module`, `smem_scratch`, `transfer`.
"""
