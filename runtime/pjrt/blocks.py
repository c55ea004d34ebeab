"""Blocks: what PJRT's opaque handles point at, so that native code can answer from them.

A block is a row of 64-bit slots. Which slots a kind has, and which function reads which of them into
which field, is data here: `runtime.pjrt.leaves` makes native code of it. Slot 0 links blocks that wait to
be let go of, slot 1 counts who holds the block, slot 2 links buffers whose value is given up, slot 3
is the stack that a buffer goes back to when nobody holds it (`runtime.pjrt.stacks`), 0 for none.
"""

from __future__ import annotations

from dataclasses import dataclass

LINK, REFERENCES, VALUE_LINK, HOME, _FIRST = 0, 1, 2, 3, 4

_KINDS = {
    "client": "name name_size version version_size topology_version topology_version_size "
    "process_index devices device_count memories "
    "memory_count topology attributes attribute_count",
    "device": "id process_index attributes attribute_count kind kind_size text text_size memories "
    "memory_count default_memory description",
    "memory": "id kind kind_size kind_id text text_size devices device_count",
    "buffer": "type dims rank bytes device memory is_deleted address layout reader",
    "executable": "self name name_size replicas partitions outputs code_bytes types dims ranks kinds "
    "kind_sizes fingerprint fingerprint_size devices device_count assignment assignment_size deleter "
    "is_deleted",
    "error": "message message_size code",
    "stream": "total_bytes granule_bytes current_bytes",
}  # fmt: skip

SLOTS: dict[str, dict[str, int]] = {
    kind: {name: number for number, name in enumerate(names.split(), _FIRST)}
    for kind, names in _KINDS.items()
}
"""The slot of each name, by kind."""


def slot_count(kind: str) -> int:
    """How many slots a block of that kind has."""
    return _FIRST + len(SLOTS[kind])


@dataclass(frozen=True)
class Getter:
    """A function that copies slots of the block in field `handle` to fields of its arguments."""

    function: str
    kind: str
    handle: str
    fields: tuple[tuple[str, str | int], ...]  # field, slot or constant


_GETTERS = """
Error_Message error error message=message message_size=message_size
Error_GetCode error error code=code
Client_PlatformName client client platform_name=name platform_name_size=name_size
Client_PlatformVersion client client platform_version=version platform_version_size=version_size
Client_ProcessIndex client client process_index=process_index
Client_Devices client client devices=devices num_devices=device_count
Client_AddressableDevices client client addressable_devices=devices num_addressable_devices=device_count
Client_AddressableMemories client client addressable_memories=memories num_addressable_memories=memory_count
Client_TopologyDescription client client topology=topology
Client_Destroy client client
TopologyDescription_PlatformName client topology platform_name=name platform_name_size=name_size
TopologyDescription_PlatformVersion client topology platform_version=topology_version platform_version_size=topology_version_size
TopologyDescription_Attributes client topology attributes=attributes num_attributes=attribute_count
TopologyDescription_GetDeviceDescriptions client topology descriptions=devices num_descriptions=device_count
TopologyDescription_Destroy client topology
Plugin_Initialize client extensions
DeviceDescription_Id device device_description id=id
DeviceDescription_ProcessIndex device device_description process_index=process_index
DeviceDescription_Attributes device device_description attributes=attributes num_attributes=attribute_count
DeviceDescription_Kind device device_description device_kind=kind device_kind_size=kind_size
DeviceDescription_DebugString device device_description debug_string=text debug_string_size=text_size
DeviceDescription_ToString device device_description to_string=text to_string_size=text_size
Device_GetDescription device device device_description=description
Device_IsAddressable device device is_addressable=1
Device_LocalHardwareId device device local_hardware_id=id
Device_AddressableMemories device device memories=memories num_memories=memory_count
Device_DefaultMemory device device memory=default_memory
Memory_Id memory memory id=id
Memory_Kind memory memory kind=kind kind_size=kind_size
Memory_Kind_Id memory memory kind_id=kind_id
Memory_DebugString memory memory debug_string=text debug_string_size=text_size
Memory_ToString memory memory to_string=text to_string_size=text_size
Memory_AddressableByDevices memory memory devices=devices num_devices=device_count
Buffer_ElementType buffer buffer type=type
Buffer_Dimensions buffer buffer dims=dims num_dims=rank
Buffer_UnpaddedDimensions buffer buffer unpadded_dims=dims num_dims=rank
Buffer_DynamicDimensionIndices buffer buffer dynamic_dim_indices=0 num_dynamic_dims=0
Buffer_OnDeviceSizeInBytes buffer buffer on_device_size_in_bytes=bytes
Buffer_Device buffer buffer device=device
Buffer_Memory buffer buffer memory=memory
Buffer_IsDeleted buffer buffer is_deleted=is_deleted
Buffer_IsOnCpu buffer buffer is_on_cpu=0
Buffer_UnsafePointer buffer buffer buffer_pointer=address
Buffer_IncreaseExternalReferenceCount buffer buffer
Buffer_DecreaseExternalReferenceCount buffer buffer
Executable_Name executable executable executable_name=name executable_name_size=name_size
Executable_NumReplicas executable executable num_replicas=replicas
Executable_NumPartitions executable executable num_partitions=partitions
Executable_NumOutputs executable executable num_outputs=outputs
Executable_SizeOfGeneratedCodeInBytes executable executable size_in_bytes=code_bytes
Executable_OutputElementTypes executable executable output_types=types num_output_types=outputs
Executable_OutputDimensions executable executable num_outputs=outputs dims=dims dim_sizes=ranks
Executable_OutputMemoryKinds executable executable num_outputs=outputs memory_kinds=kinds memory_kind_sizes=kind_sizes
Executable_Fingerprint executable executable executable_fingerprint=fingerprint executable_fingerprint_size=fingerprint_size
LoadedExecutable_Fingerprint executable executable executable_fingerprint=fingerprint executable_fingerprint_size=fingerprint_size
LoadedExecutable_AddressableDevices executable executable addressable_devices=devices num_addressable_devices=device_count
LoadedExecutable_IsDeleted executable executable is_deleted=is_deleted
CopyToDeviceStream_TotalBytes stream stream total_bytes=total_bytes
CopyToDeviceStream_GranuleSize stream stream granule_size_in_bytes=granule_bytes
CopyToDeviceStream_CurrentBytes stream stream current_bytes=current_bytes
LoadedExecutable_GetDeviceAssignment executable executable serialized_bytes=assignment serialized_bytes_size=assignment_size serialized_device_assignment=0 serialized_device_assignment_deleter=deleter
"""  # noqa: E501


def _getter(line: str) -> Getter:
    function, kind, handle, *fields = line.split()
    pairs = (field.split("=") for field in fields)
    named = tuple((field, int(slot) if slot.isdigit() else slot) for field, slot in pairs)
    return Getter(function, kind, handle, named)


GETTERS = tuple(_getter(line) for line in _GETTERS.strip().split("\n"))
