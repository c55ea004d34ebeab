// Shardings and frontend attributes stand on the instruction that makes the value; where the value is
// an operand handed on, a Sharding custom call carries them.
// RUN: verify %s
module @m attributes {mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func @main(%a: tensor<8x4xf32>) -> (tensor<8x4xf32> {mhlo.sharding = "{replicated}"}, tensor<8x4xf32>) {
    %0 = stablehlo.add %a, %a {mhlo.sharding = "{devices=[4,1]<=[4]}"} : tensor<8x4xf32>
    %1 = stablehlo.convert %0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"y"}, {?}]>]>} : tensor<8x4xf32>
    %2 = stablehlo.negate %1 {mhlo.frontend_attributes = {note = "n"}} : tensor<8x4xf32>
    return %2, %a : tensor<8x4xf32>, tensor<8x4xf32>
  }
}
// CHECK: %add = f32[8,4] add(%a, %a), sharding={devices=[4,1]<=[4]}
// CHECK: %custom-call = f32[8,4] custom-call(%add), custom_call_target="Sharding", sharding={devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}
// CHECK: %negate = f32[8,4] negate(%custom-call), frontend_attributes={note="n"}
// CHECK: %custom-call.1 = f32[8,4] custom-call(%negate), custom_call_target="Sharding", sharding={replicated}
// CHECK: ROOT %tuple = (f32[8,4], f32[8,4]) tuple(%custom-call.1, %a)
