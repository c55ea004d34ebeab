"""HLO to HLO passes: `pipeline` has their order, `facts` what each counts on and establishes.

To be imported from outside: `call_inliner`, `context`, `dce`, `expanders`, `host_transfers`,
`pass_manager`, `pipeline`, `stages`, `transfer_devices`.
"""
