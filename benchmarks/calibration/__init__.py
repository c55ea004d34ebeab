"""Calibration of the timing model against published measurements: data, fit and report."""
