"""Vector code: from a fusion's nodes and index maps to vreg operations.

Any file may be imported.
"""
