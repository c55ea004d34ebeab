"""The LLVM machine: programs translated to native code, and the library of kernels that they call. To be
imported from here: `llvm_machine`, `program_translator` for kinds of runs, `host`; the rest is its own."""
