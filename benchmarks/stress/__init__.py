"""Threads that compile, run, fail and collect garbage, for as long as is asked."""
