"""The LLVM machine: programs translated to native code."""
