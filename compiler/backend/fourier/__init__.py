"""The kernel of a Fourier transform: butterflies on vregs, batch in the lanes.

To be imported from outside: `kernel`.
"""
