"""Measurements: each module writes one page of docs/ and says how."""
