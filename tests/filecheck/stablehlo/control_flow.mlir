// What a region uses from outside becomes loop state or a branch argument; constants are made again.
// RUN: verify %s
func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %acc = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    %sum = stablehlo.add %acc, %x : tensor<4xf32>
    stablehlo.return %next, %sum : tensor<i32>, tensor<4xf32>
  }
  %p = stablehlo.compare GT, %n, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %1 = "stablehlo.if"(%p) ({
    stablehlo.return %0#1 : tensor<4xf32>
  }, {
    %neg = stablehlo.negate %x : tensor<4xf32>
    stablehlo.return %neg : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
// CHECK: %body (arg_tuple
// CHECK-SAME: (s32[], f32[4], s32[], f32[4])
// CHECK: ROOT %tuple
// CHECK: %true_branch (arg: f32[4]) -> f32[4] {
// CHECK: ENTRY %main (n: s32[], x: f32[4]) -> f32[4] {
// CHECK: while(%tuple{{.*}}), condition=%condition, body=%body
// CHECK: ROOT %conditional = f32[4] conditional(%compare{{.*}}, %get-tuple-element{{.*}}, %x), true_computation=%true_branch, false_computation=%false_branch
