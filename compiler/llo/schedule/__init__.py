"""LLO to bundles: dependences within a block, list scheduling, a check of the result.

To be imported from outside: `bundles`.
"""
