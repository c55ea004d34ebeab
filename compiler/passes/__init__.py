"""HLO to HLO passes and the manager that runs them."""
