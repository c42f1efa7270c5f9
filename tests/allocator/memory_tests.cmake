# The table of the driver, the memory and the tiers: below the memory core, on the stand-in driver.
spillway_test(allocator_memory_test
  SOURCES driver/cuda_driver_test.cc driver/memory_turn_test.cc driver/stream_ref_test.cc memory/address_map_test.cc
    memory/block_allocator_test.cc memory/block_id_test.cc
    memory/size_counts_test.cc memory/chunk_pool_test.cc memory/gpu_budget_test.cc memory/launch_sets_test.cc
    memory/va_space_test.cc tier/free_buffers_test.cc tier/host_handles_test.cc tier/host_pool_test.cc tier/pinned_slab_test.cc tier/shared_capacity_test.cc
    tier/transfer_meters_test.cc
  DEPS spillway_core_fixture LABELS unit)
spillway_test(content_hash_test SOURCES driver/content_hash_test.cc driver/nvrtc.cc DEPS spillway_driver_table LABELS unit)
# The compiler comes with PyTorch's wheel.
file(GLOB spillway_nvrtc "${CMAKE_SOURCE_DIR}/build/venv/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13")
if(spillway_nvrtc)
  target_compile_definitions(content_hash_test PRIVATE SPILLWAY_NVRTC="${spillway_nvrtc}" SPILLWAY_DRIVER_SOURCES="${CMAKE_SOURCE_DIR}/allocator/driver")
endif()
