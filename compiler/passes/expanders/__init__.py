"""Expansions of operations that have no kernel into operations that have one.

Any file may be imported.
"""
