"""The kernel of a Fourier transform: butterflies on vregs, batch in the lanes."""
