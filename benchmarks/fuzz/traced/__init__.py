"""Random JAX programs: functions of JAX's namespaces, composed blindly, lowered to HLO and StableHLO."""
