// What jax.lax.ragged_dot is for a TPU: the operation that HLO has, not the decomposition, which multiplies all
// rows with every group. Other composites are their decompositions.
// RUN: parse %s
module @m {
  func.func public @main(%x: tensor<16x8xf32>, %w: tensor<3x8x5xf32>, %s: tensor<3xi32>) -> tensor<16x5xf32> {
    %0 = stablehlo.composite "chlo.ragged_dot" %x, %w, %s {composite_attributes = {precision_config = ["HIGHEST", "DEFAULT"], ragged_dot_dimension_numbers = [dense<> : tensor<0xi64>, dense<> : tensor<0xi64>, dense<1> : tensor<1xi64>, dense<1> : tensor<1xi64>, dense<0> : tensor<1xi64>, dense<0> : tensor<1xi64>]}, decomposition = @chlo.ragged_dot.impl, version = 1 : i32} : (tensor<16x8xf32>, tensor<3x8x5xf32>, tensor<3xi32>) -> tensor<16x5xf32>
    %1 = stablehlo.composite "mine.twice" %0 {decomposition = @twice} : (tensor<16x5xf32>) -> tensor<16x5xf32>
    return %1 : tensor<16x5xf32>
  }
  func.func private @chlo.ragged_dot.impl(%x: tensor<16x8xf32>, %w: tensor<3x8x5xf32>, %s: tensor<3xi32>) -> tensor<16x5xf32> {
    %c = stablehlo.constant dense<0.0> : tensor<16x5xf32>
    return %c : tensor<16x5xf32>
  }
  func.func private @twice(%x: tensor<16x5xf32>) -> tensor<16x5xf32> {
    %0 = stablehlo.add %x, %x : tensor<16x5xf32>
    return %0 : tensor<16x5xf32>
  }
}
// CHECK: ragged-dot({{.*}}), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}, operand_precision={highest,default}
// CHECK: call({{.*}}), to_apply=%twice
