"""What becomes HLO: models in StableHLO or HLO text (`models`), NumPy functions (`numpy`).

To be imported from outside: `hlo_proto`, `models`, `numpy`, `recognition`.
"""
