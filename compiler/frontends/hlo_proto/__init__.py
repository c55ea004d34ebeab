"""HLO modules as protocol buffers (HloModuleProto, HloProto, HloSnapshot) -> HLO, by way of their text.

Numbers of fields are those of XLA's hlo.proto and xla_data.proto.

To be imported from outside: `modules`.
"""
