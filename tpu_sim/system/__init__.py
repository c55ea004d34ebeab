"""Cores and chips under one clock."""
