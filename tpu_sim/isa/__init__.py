"""The instruction set: rows, bundles, encoding, chips, cost equations."""
