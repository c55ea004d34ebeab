"""Batch normalisation by its definition: means and variances over all but the feature dimension.

Types narrower than f32 are computed in f32 and rounded at the end.
"""

from __future__ import annotations

from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.elementwise import take
from compiler.frontends.stablehlo.syntax import Operation
from compiler.hlo.dtypes import F32, DType


class _Features:
    """Arithmetic between an operand and one value per feature."""

    def __init__(self, b: Body, operand: Instr) -> None:
        self.b = b
        self.result_dtype = operand.array.dtype
        self.dtype: DType = F32 if self.result_dtype.bits < F32.bits else self.result_dtype
        self.x = self.wide(operand)
        self.feature = b.attributes().integer("feature_index")
        if not 0 <= self.feature < operand.array.rank:
            b.op.fail(f"feature_index = {self.feature} is out of range")
        self.others = tuple(d for d in range(operand.array.rank) if d != self.feature)
        features = operand.array.dims[self.feature]
        self.count = operand.array.element_count // max(1, features)
        self.epsilon = b.attributes().number("epsilon")

    def wide(self, value: Instr) -> Instr:
        return value if value.array.dtype is self.dtype else self.b.convert(value, self.dtype)

    def narrow(self, value: Instr) -> Instr:
        same = value.array.dtype is self.result_dtype
        return value if same else self.b.convert(value, self.result_dtype)

    def spread(self, per_feature: Instr) -> Instr:
        wide = self.wide(per_feature)
        return self.b.broadcast(wide, self.x.array.dims, (self.feature,))

    def total(self, value: Instr) -> Instr:
        b = self.b
        zero = b.constant(self.dtype, 0)
        return b.reduce(value, zero, self.others, b.scalar("add", self.dtype))

    def mean(self, value: Instr) -> Instr:
        total = self.total(value)
        return self.b.divide(total, self.b.like(total, max(1, self.count)))

    def deviation(self, variance: Instr) -> Instr:
        """``sqrt(variance + epsilon)`` per feature."""
        b = self.b
        variance = self.wide(variance)
        return b.unary("sqrt", b.add(variance, b.like(variance, self.epsilon)))

    def normalised(self, mean: Instr, variance: Instr) -> Instr:
        b = self.b
        centred = b.subtract(self.x, self.spread(mean))
        return b.divide(centred, self.spread(self.deviation(variance)))

    def scaled(self, value: Instr, scale: Instr, offset: Instr) -> Instr:
        b = self.b
        return self.narrow(b.add(b.multiply(value, self.spread(scale)), self.spread(offset)))


def _inference(b: Body, op: Operation) -> Instr:
    operand, scale, offset, mean, variance = take(b, op, 5)
    f = _Features(b, operand)
    return f.scaled(f.normalised(mean, variance), scale, offset)


def _training(b: Body, op: Operation) -> list[Instr]:
    operand, scale, offset = take(b, op, 3)
    f = _Features(b, operand)
    mean = f.mean(f.x)
    centred = b.subtract(f.x, f.spread(mean))
    variance = f.mean(b.multiply(centred, centred))
    output = f.scaled(f.normalised(mean, variance), scale, offset)
    return [output, f.narrow(mean), f.narrow(variance)]


def _grad(b: Body, op: Operation) -> list[Instr]:
    """With n elements per feature, c = x - mean and v = variance + epsilon:

    grad_operand = scale / sqrt(v) / n * (n * g - sum(g) - c * sum(g * c) / v)
    """
    operand, scale, mean, variance, grad = take(b, op, 5)
    f = _Features(b, operand)
    g = f.wide(grad)
    centred = b.subtract(f.x, f.spread(mean))
    deviation = f.deviation(variance)
    total = f.total(g)
    correlated = b.divide(f.total(b.multiply(g, centred)), b.multiply(deviation, deviation))
    inner = b.subtract(b.multiply(g, b.like(g, f.count)), f.spread(total))
    inner = b.subtract(inner, b.multiply(centred, f.spread(correlated)))
    factor = b.divide(f.wide(scale), b.multiply(deviation, b.like(deviation, f.count)))
    grad_operand = b.multiply(f.spread(factor), inner)
    grad_scale = f.total(b.multiply(g, b.divide(centred, f.spread(deviation))))
    return [f.narrow(grad_operand), f.narrow(grad_scale), f.narrow(total)]


TABLE: dict[str, Lowering] = {
    "stablehlo.batch_norm_grad": _grad,
    "stablehlo.batch_norm_inference": _inference,
    "stablehlo.batch_norm_training": _training,
}
