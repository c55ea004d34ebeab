"""Expansions of operations that have no kernel into operations that have one."""
