"""HLO to HLO passes: `pipeline` has their order, `facts` what each counts on and establishes."""
