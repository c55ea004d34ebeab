"""The kernel of a sort: a merge network on vregs, lines in the lanes.

To be imported from outside: `kernel`.
"""
