"""LLO to LLO: passes as data, with their order and its reasons, and what runs them.

To be imported from outside: `pass_manager`, `pipeline`.
"""
