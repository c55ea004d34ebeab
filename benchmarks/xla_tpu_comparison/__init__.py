"""Our cycles beside the estimates of XLA's TPU compiler for the same HLO."""
