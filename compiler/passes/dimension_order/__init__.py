"""Which dimension of each array lies along lanes, chosen by cost, and HLO rewritten into that order.

Any file may be imported.
"""
