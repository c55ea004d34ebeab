// More devices than any slice has would be lists without end.
// RUN: parse-fails %s
module @m attributes {mhlo.num_partitions = 1000000000000000000000000000000 : i32, mhlo.num_replicas = 1 : i32} {
  func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
    return %x : tensor<3xf32>
  }
}
// CHECK: HloModule m is for 1 replicas of 1000000000000000000000000000000 partitions; there can be 1048576 devices
