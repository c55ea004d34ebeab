"""Traces read by the programs that they are for: Perfetto's trace processor, xprof."""
