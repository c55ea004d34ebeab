"""Frontends that produce HLO."""
