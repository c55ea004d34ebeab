// In a program for several devices, shardings of both kinds become HLO's; groups and channels stay.
// RUN: verify %s
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func public @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}, %b: tensor<8x16xf32> {mhlo.sharding = "{devices=[8,1]<=[8]}"}) -> tensor<8x16xf32> {
    %0 = sdy.sharding_constraint %a <@mesh, [{"y", "x"}, {}]> : tensor<8x16xf32>
    %1 = "stablehlo.all_reduce"(%0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, use_global_device_ids}> ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %s = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %1 : tensor<8x16xf32>
  }
}
// CHECK: num_partitions=8
// CHECK-SAME: frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=4]>}}
// CHECK: %a = f32[8,16] parameter(0), sharding={devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}, frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}, {\"y\"}]>"}
// CHECK: %b = f32[8,16] parameter(1), sharding={devices=[8,1]<=[8]}
// CHECK: custom-call(%a), {{.*}}sharding={devices=[8,1]<=[2,4]T(1,0)}
// CHECK: all-reduce(%custom-call), channel_id=1, replica_groups={{[{][{]}}0,1,2,3},{4,5,6,7}}, use_global_device_ids=true, to_apply=%reducer
