"""Shardings of a whole program: from what it states to one on every instruction."""
