"""PJRT's C interface as tables: functions in their order, argument structures, numbers of types.

What stands here are facts of the published interface (`pjrt_c_api.h`, 0.81). A structure begins with
its size and a pointer to extensions; `_FIELDS` lists what follows, each field with a letter:

    p pointer   z size_t   q int64   Q uint64   i int32   b bool   ? a structure, whose fields follow

Callers that are newer pass longer structures, older ones shorter: only fields that lie within the size
that the caller states are written (`is_within`).
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from compiler.hlo.dtypes import BY_NAME, DType

MAJOR, MINOR = 0, 81
"""The version that we declare. Frameworks accept plug-ins of minor versions from 29 up to now."""

_FUNCTIONS = """
Error_Destroy Error_Message Error_GetCode Plugin_Initialize Plugin_Attributes Event_Destroy Event_IsReady
Event_Error Event_Await Event_OnReady Client_Create Client_Destroy Client_PlatformName Client_ProcessIndex
Client_PlatformVersion Client_Devices Client_AddressableDevices Client_LookupDevice
Client_LookupAddressableDevice Client_AddressableMemories Client_Compile Client_DefaultDeviceAssignment
Client_BufferFromHostBuffer DeviceDescription_Id DeviceDescription_ProcessIndex DeviceDescription_Attributes
DeviceDescription_Kind DeviceDescription_DebugString DeviceDescription_ToString Device_GetDescription
Device_IsAddressable Device_LocalHardwareId Device_AddressableMemories Device_DefaultMemory
Device_MemoryStats Memory_Id Memory_Kind Memory_DebugString Memory_ToString Memory_AddressableByDevices
Executable_Destroy Executable_Name Executable_NumReplicas Executable_NumPartitions Executable_NumOutputs
Executable_SizeOfGeneratedCodeInBytes Executable_GetCostAnalysis Executable_OutputMemoryKinds
Executable_OptimizedProgram Executable_Serialize LoadedExecutable_Destroy LoadedExecutable_GetExecutable
LoadedExecutable_AddressableDevices LoadedExecutable_Delete LoadedExecutable_IsDeleted
LoadedExecutable_Execute Executable_DeserializeAndLoad LoadedExecutable_Fingerprint Buffer_Destroy
Buffer_ElementType Buffer_Dimensions Buffer_UnpaddedDimensions Buffer_DynamicDimensionIndices
Buffer_GetMemoryLayout Buffer_OnDeviceSizeInBytes Buffer_Device Buffer_Memory Buffer_Delete
Buffer_IsDeleted Buffer_CopyToDevice Buffer_ToHostBuffer Buffer_IsOnCpu Buffer_ReadyEvent
Buffer_UnsafePointer Buffer_IncreaseExternalReferenceCount Buffer_DecreaseExternalReferenceCount
Buffer_OpaqueDeviceMemoryDataPointer CopyToDeviceStream_Destroy CopyToDeviceStream_AddChunk
CopyToDeviceStream_TotalBytes CopyToDeviceStream_GranuleSize CopyToDeviceStream_CurrentBytes
TopologyDescription_Create TopologyDescription_Destroy TopologyDescription_PlatformName
TopologyDescription_PlatformVersion TopologyDescription_GetDeviceDescriptions
TopologyDescription_Serialize TopologyDescription_Attributes Compile Executable_OutputElementTypes
Executable_OutputDimensions Buffer_CopyToMemory Client_CreateViewOfDeviceBuffer Executable_Fingerprint
Client_TopologyDescription Executable_GetCompiledMemoryStats Memory_Kind_Id ExecuteContext_Create
ExecuteContext_Destroy Buffer_CopyRawToHost AsyncHostToDeviceTransferManager_Destroy
AsyncHostToDeviceTransferManager_TransferData Client_CreateBuffersForAsyncHostToDevice
AsyncHostToDeviceTransferManager_RetrieveBuffer AsyncHostToDeviceTransferManager_Device
AsyncHostToDeviceTransferManager_BufferCount AsyncHostToDeviceTransferManager_BufferSize
AsyncHostToDeviceTransferManager_SetBufferError AsyncHostToDeviceTransferManager_AddMetadata Client_DmaMap
Client_DmaUnmap Client_CreateUninitializedBuffer Client_UpdateGlobalProcessInfo
TopologyDescription_Deserialize Client_CreateAliasBuffer Client_FulfillAliasBuffer
LoadedExecutable_GetDeviceAssignment
"""
FUNCTIONS = _FUNCTIONS.split()
"""Every function of the interface, in the order of its table."""

_FIELDS = """
Error_Destroy error:p
Error_Message error:p message:p message_size:z
Error_GetCode error:p code:i
Plugin_Initialize
Plugin_Attributes attributes:p num_attributes:z
Event_Destroy event:p
Event_IsReady event:p is_ready:b
Event_Error event:p
Event_Await event:p
Event_OnReady event:p callback:p user_arg:p
Client_Create create_options:p num_options:z kv_get_callback:p kv_get_user_arg:p kv_put_callback:p
 kv_put_user_arg:p client:p kv_try_get_callback:p kv_try_get_user_arg:p
Client_Destroy client:p
Client_PlatformName client:p platform_name:p platform_name_size:z
Client_ProcessIndex client:p process_index:i
Client_PlatformVersion client:p platform_version:p platform_version_size:z
Client_TopologyDescription client:p topology:p
Client_Devices client:p devices:p num_devices:z
Client_AddressableDevices client:p addressable_devices:p num_addressable_devices:z
Client_LookupDevice client:p id:i device:p
Client_LookupAddressableDevice client:p local_hardware_id:i addressable_device:p
Client_AddressableMemories client:p addressable_memories:p num_addressable_memories:z
Client_Compile client:p program:p compile_options:p compile_options_size:z executable:p
Client_DefaultDeviceAssignment client:p num_replicas:i num_partitions:i default_assignment_size:z
 default_assignment:p
Client_BufferFromHostBuffer client:p data:p type:i dims:p num_dims:z byte_strides:p num_byte_strides:z
 host_buffer_semantics:i device:p memory:p device_layout:p done_with_host_buffer:p buffer:p
DeviceDescription_Id device_description:p id:i
DeviceDescription_ProcessIndex device_description:p process_index:i
DeviceDescription_Attributes device_description:p num_attributes:z attributes:p
DeviceDescription_Kind device_description:p device_kind:p device_kind_size:z
DeviceDescription_DebugString device_description:p debug_string:p debug_string_size:z
DeviceDescription_ToString device_description:p to_string:p to_string_size:z
Device_GetDescription device:p device_description:p
Device_IsAddressable device:p is_addressable:b
Device_LocalHardwareId device:p local_hardware_id:i
Device_AddressableMemories device:p memories:p num_memories:z
Device_DefaultMemory device:p memory:p
Device_MemoryStats device:p bytes_in_use:q peak_bytes_in_use:q peak_bytes_in_use_is_set:b num_allocs:q
 num_allocs_is_set:b largest_alloc_size:q largest_alloc_size_is_set:b bytes_limit:q bytes_limit_is_set:b
 bytes_reserved:q bytes_reserved_is_set:b peak_bytes_reserved:q peak_bytes_reserved_is_set:b
 bytes_reservable_limit:q bytes_reservable_limit_is_set:b largest_free_block_bytes:q
 largest_free_block_bytes_is_set:b pool_bytes:q pool_bytes_is_set:b peak_pool_bytes:q
 peak_pool_bytes_is_set:b
Memory_Id memory:p id:i
Memory_Kind memory:p kind:p kind_size:z
Memory_Kind_Id memory:p kind_id:i
Memory_DebugString memory:p debug_string:p debug_string_size:z
Memory_ToString memory:p to_string:p to_string_size:z
Memory_AddressableByDevices memory:p devices:p num_devices:z
Executable_Destroy executable:p
LoadedExecutable_Destroy executable:p
LoadedExecutable_GetExecutable loaded_executable:p executable:p
LoadedExecutable_GetDeviceAssignment executable:p serialized_bytes:p serialized_bytes_size:z
 serialized_device_assignment:p serialized_device_assignment_deleter:p
Executable_Name executable:p executable_name:p executable_name_size:z
Executable_NumReplicas executable:p num_replicas:z
Executable_NumPartitions executable:p num_partitions:z
LoadedExecutable_AddressableDevices executable:p addressable_devices:p num_addressable_devices:z
Executable_OptimizedProgram executable:p program:p
LoadedExecutable_Delete executable:p
LoadedExecutable_IsDeleted executable:p is_deleted:b
LoadedExecutable_Execute executable:p options:p argument_lists:p num_devices:z num_args:z output_lists:p
 device_complete_events:p execute_device:p
Executable_NumOutputs executable:p num_outputs:z
Executable_SizeOfGeneratedCodeInBytes executable:p size_in_bytes:q
Executable_Fingerprint executable:p executable_fingerprint:p executable_fingerprint_size:z
Executable_GetCostAnalysis executable:p num_properties:z properties:p
Executable_GetCompiledMemoryStats executable:p generated_code_size_in_bytes:q argument_size_in_bytes:q
 output_size_in_bytes:q alias_size_in_bytes:q temp_size_in_bytes:q host_generated_code_size_in_bytes:q
 host_argument_size_in_bytes:q host_output_size_in_bytes:q host_alias_size_in_bytes:q
 host_temp_size_in_bytes:q peak_memory_in_bytes:q
Executable_OutputElementTypes executable:p output_types:p num_output_types:z
Executable_OutputDimensions executable:p num_outputs:z dims:p dim_sizes:p
Executable_OutputMemoryKinds executable:p num_outputs:z memory_kinds:p memory_kind_sizes:p
Executable_Serialize executable:p serialized_bytes:p serialized_bytes_size:z serialized_executable:p
 serialized_executable_deleter:p
Executable_DeserializeAndLoad client:p serialized_executable:p serialized_executable_size:z
 loaded_executable:p overridden_serialized_compile_options:p overridden_serialized_compile_options_size:z
LoadedExecutable_Fingerprint executable:p executable_fingerprint:p executable_fingerprint_size:z
Buffer_Destroy buffer:p
Buffer_ElementType buffer:p type:i
Buffer_Dimensions buffer:p dims:p num_dims:z
Buffer_UnpaddedDimensions buffer:p unpadded_dims:p num_dims:z
Buffer_DynamicDimensionIndices buffer:p dynamic_dim_indices:p num_dynamic_dims:z
Buffer_GetMemoryLayout buffer:p layout:?Layout
Buffer_ToHostBuffer src:p host_layout:p dst:p dst_size:z event:p
Buffer_OnDeviceSizeInBytes buffer:p on_device_size_in_bytes:z
Buffer_Delete buffer:p
Buffer_IsDeleted buffer:p is_deleted:b
Buffer_CopyRawToHost buffer:p dst:p offset:q transfer_size:q event:p
Buffer_CopyToDevice buffer:p dst_device:p dst_buffer:p
Buffer_CopyToMemory buffer:p dst_memory:p dst_buffer:p
Buffer_IsOnCpu buffer:p is_on_cpu:b
Buffer_Device buffer:p device:p
Buffer_Memory buffer:p memory:p
Buffer_ReadyEvent buffer:p event:p
Buffer_UnsafePointer buffer:p buffer_pointer:p
Buffer_IncreaseExternalReferenceCount buffer:p
Buffer_DecreaseExternalReferenceCount buffer:p
Buffer_OpaqueDeviceMemoryDataPointer buffer:p device_memory_ptr:p
CopyToDeviceStream_Destroy stream:p
CopyToDeviceStream_AddChunk stream:p chunk:p transfer_complete:p
CopyToDeviceStream_TotalBytes stream:p total_bytes:q
CopyToDeviceStream_GranuleSize stream:p granule_size_in_bytes:q
CopyToDeviceStream_CurrentBytes stream:p current_bytes:q
TopologyDescription_Create topology_name:p topology_name_size:z create_options:p num_options:z topology:p
TopologyDescription_Destroy topology:p
TopologyDescription_Serialize topology:p serialized_bytes:p serialized_bytes_size:z serialized_topology:p
 serialized_topology_deleter:p
TopologyDescription_Deserialize serialized_topology:p serialized_topology_size:z topology:p
Compile topology:p program:p compile_options:p compile_options_size:z client:p executable:p
TopologyDescription_PlatformVersion topology:p platform_version:p platform_version_size:z
TopologyDescription_PlatformName topology:p platform_name:p platform_name_size:z
TopologyDescription_GetDeviceDescriptions topology:p descriptions:p num_descriptions:z
TopologyDescription_Attributes topology:p attributes:p num_attributes:z
ExecuteContext_Create context:p
ExecuteContext_Destroy context:p
ExecuteOptions send_callbacks:p recv_callbacks:p num_send_ops:z num_recv_ops:z launch_id:i
 non_donatable_input_indices:p num_non_donatable_input_indices:z context:p
Program code:p code_size:z format:p format_size:z
NamedValue name:p name_size:z type:i value:q value_size:z
Tiled minor_to_major:p minor_to_major_size:z tile_dims:p tile_dim_sizes:p num_tiles:z
Layout tiled:?Tiled type:i
"""
"""Fields after size and extensions, by function or structure; a line that begins with a blank goes on."""

_PLAIN = """
Chunk data:p size:z deleter:p deleter_arg:p
Transfer channel_id:q user_arg:p callback:p
"""
"""Structures that begin with neither."""

_LETTERS: dict[str, Any] = {
    "p": ctypes.c_void_p, "z": ctypes.c_size_t, "q": ctypes.c_int64, "Q": ctypes.c_uint64,
    "i": ctypes.c_int32, "b": ctypes.c_bool,
}  # fmt: skip


def _lines(text: str) -> dict[str, list[str]]:
    lines = text.replace("\n ", " ").split("\n")
    return {words[0]: words[1:] for words in (line.split() for line in lines) if words}


_BEGUN, _BARE = _lines(_FIELDS), _lines(_PLAIN)


@cache
def structure(name: str) -> Any:
    """The `ctypes.Structure` of a function's arguments, or of a structure, by name."""
    begun: list[tuple[str, Any]] = [
        ("struct_size", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
    ]
    fields = begun + _fields(_BEGUN[name]) if name in _BEGUN else _fields(_BARE[name])
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def _fields(words: list[str]) -> list[tuple[str, Any]]:
    found = []
    for word in words:
        field, _, letter = word.partition(":")
        found.append((field, structure(letter[1:]) if letter[0] == "?" else _LETTERS[letter]))
    return found


def is_within(arguments: Any, field: str) -> bool:
    """Whether the caller's structure is long enough to have that field."""
    place = getattr(type(arguments), field)
    return bool(place.offset + place.size <= arguments.struct_size)


_TYPES = (
    "- pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 bf16 c64 c128 f8e5m2 f8e4m3fn f8e4m3b11fnuz "
    "f8e5m2fnuz f8e4m3fnuz s4 u4 token s2 u2 f8e4m3 f8e3m4 f8e8m0fnu f4e2m1fn"
)
"""Element types in the order of their numbers (`PJRT_Buffer_Type`), by HLO's names."""
TYPE_OF_NUMBER: dict[int, DType] = {
    number: BY_NAME[name] for number, name in enumerate(_TYPES.split()) if name in BY_NAME
}
NUMBER_OF_TYPE: dict[DType, int] = {dtype: number for number, dtype in TYPE_OF_NUMBER.items()}


class ErrorCode:
    """Error codes, as absl has them."""

    CANCELLED, UNKNOWN, INVALID_ARGUMENT, NOT_FOUND = 1, 2, 3, 5
    RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL = 8, 9, 12, 13
