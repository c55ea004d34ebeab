"""Patterns as values, the rewriter that applies rules, and small edits and makers of HLO for them.

Any file may be imported.
"""
