"""The NumPy meaning of HLO: the oracle of the tests.

To be imported from outside: the package; by the debugger `context`, `interpreter`.
"""

from compiler.hlo.evaluator.context import EvaluationOptions
from compiler.hlo.evaluator.interpreter import evaluate, evaluate_computation, evaluate_devices

__all__ = ["EvaluationOptions", "evaluate", "evaluate_computation", "evaluate_devices"]
