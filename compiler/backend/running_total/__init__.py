"""Kernels of `running-total`: blocks in turn, and the registers of one.

To be imported from outside: `kernel`.
"""
