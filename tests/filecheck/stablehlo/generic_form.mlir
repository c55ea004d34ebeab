// The generic form of a module, with properties, discardable attributes and locations.
// RUN: verify %s
#loc = loc("program")
"builtin.module"() <{sym_name = "m"}> ({
  "func.func"() <{function_type = (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8xf32>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<8x4xf32> loc("a"), %arg1: tensor<4x2xf32> loc("b")):
    %0 = "stablehlo.dot_general"(%arg0, %arg1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision DEFAULT>]}> {note = "kept out"} : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32> loc(callsite("f" at "g.py":3:4))
    %1 = "stablehlo.constant"() <{value = dense<0.000000e+00> : tensor<f32>}> : () -> tensor<f32>
    %2 = "stablehlo.reduce"(%0, %1) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %3 = "stablehlo.add"(%arg2, %arg3) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%3) : (tensor<f32>) -> ()
    }) : (tensor<8x2xf32>, tensor<f32>) -> tensor<8xf32>
    "func.return"(%2) : (tensor<8xf32>) -> () loc(#loc)
  }) : () -> ()
}) : () -> ()
// CHECK: HloModule m, entry_computation_layout={(f32[8,4], f32[4,2])->f32[8]}
// CHECK: %reducer (arg2: f32[], arg3: f32[]) -> f32[] {
// CHECK: %dot = f32[8,2] dot(%arg0, %arg1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,default}
// CHECK: ROOT %reduce = f32[8] reduce(%dot, %constant), dimensions={1}, to_apply=%reducer
