// A signature without its colon is pointed at, although the line breaks do not matter.
// RUN: parse-fails %s
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.add %x, %x tensor<3xf32>
  return %0 : tensor<3xf32>
}
// CHECK: expected a type signature (`: type`), found `tensor`
// CHECK: at missing_colon.mlir:4:29
