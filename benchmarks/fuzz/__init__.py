"""Random valid HLO modules, run every way there is and compared: `python -m benchmarks.fuzz`."""
