"""Facts about HLO that passes and the backend ask for."""
