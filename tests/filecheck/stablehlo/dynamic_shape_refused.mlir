// A shape that depends on run-time values is refused at the operation that needs it.
// RUN: parse-fails %s
func.func @main(%x: tensor<3xf32>, %s: tensor<1xi32>) -> tensor<?xf32> {
  %0 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [0] : (tensor<3xf32>, tensor<1xi32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
// CHECK: stablehlo.dynamic_broadcast_in_dim: the shape operand must be constant
// CHECK: at dynamic_shape_refused.mlir:4:8
