"""The LLVM machine: programs translated to native code, and the library of kernels that they call.

To be imported from outside: `emitter`, `engine`, `host`, `kernel_builtins`, `kernel_language`,
`llvm_machine`, `quick_run`, `translated`.
"""
