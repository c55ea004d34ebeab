"""The attribute by which a call says how it is differentiated."""

DERIVATIVE = "derivative"
"""On a `call` while a program is traced: a `compiler.autodiff.rule.Rule`. It is gone once it is traced."""
