"""What becomes HLO: models in StableHLO or HLO text (`models`), NumPy functions (`numpy`)."""
