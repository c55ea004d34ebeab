"""The PJRT plug-in: what JAX asks of a platform, answered by our clients, buffers and programs.

    layouts     structures, functions and numbers of PJRT's C interface, as tables
    leaves      which functions are native code, made from the tables by LLVM when the plug-in loads
    handles     what PJRT holds on to: blocks of slots, and the Python objects behind them
    devices, buffers, programs, execution, texts
                the functions themselves, in Python, and what they fill blocks with
    interface   all of it as the one table of functions that jaxlib takes
    plugin      how JAX finds it

docs/jax.md says what works; docs/adr/0013-the-jax-plug-in-is-python-with-native-leaves.md why it is so.

To be imported from outside: `profile`.
"""
