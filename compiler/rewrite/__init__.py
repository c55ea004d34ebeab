"""Patterns as values and the rewriter that applies them."""
