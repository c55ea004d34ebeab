// Every part of a convolution's window and dimension numbers has its place in HLO.
// RUN: verify %s
func.func @main(%x: tensor<1x8x8x4xf32>, %k: tensor<3x3x2x4xf32>) -> tensor<1x7x15x4xf32> {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 2], [1, 1]], lhs_dilate = [1, 2], rhs_dilate = [2, 1], reverse = [true, false]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x8x8x4xf32>, tensor<3x3x2x4xf32>) -> tensor<1x7x15x4xf32>
  return %0 : tensor<1x7x15x4xf32>
}
// CHECK: convolution(%x, %k), window={size=3x3 pad=1_2x1_1 lhs_dilate=1x2 rhs_dilate=2x1 rhs_reversal=1x0}, dim_labels=b01f_01io->b01f, feature_group_count=2
