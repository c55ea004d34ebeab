"""The debugger: `Debugger` (`debugger`), for Python programs, and the prompt that calls it (`prompt`).

To be imported from outside: `breakpoints` (its errors), `commands`, `debugger`, `prompt`.
"""
