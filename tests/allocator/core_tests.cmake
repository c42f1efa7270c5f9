# The memory core on the stand-in driver, built once more with delay points, mutants and checks of locks.
set(core_sources)
foreach(part "" state transfer plan)
  string(REGEX REPLACE "(.+)" "_\\1" target "${part}")
  get_target_property(sources spillway_residency${target} SOURCES)
  list(TRANSFORM sources PREPEND "${CMAKE_SOURCE_DIR}/allocator/residency/${part}/")
  list(APPEND core_sources ${sources})
endforeach()
spillway_module(spillway_residency_hooked
  SOURCES ${core_sources}
  DEPS spillway_memory_checked spillway_tier_checked spillway_io_checked spillway_policy spillway_driver_table_checked
       spillway_os_checked
       absl::status absl::statusor absl::str_format absl::function_ref)
target_compile_definitions(spillway_residency_hooked PUBLIC SPILLWAY_TEST_HOOKS=1)

spillway_module(spillway_core_fixture SOURCES core_fixture.cc DEPS spillway_residency_hooked)
target_compile_definitions(spillway_core_fixture PRIVATE
  SPILLWAY_SIMCUDA_DRIVER="$<TARGET_FILE:simcuda_driver>")
target_link_libraries(spillway_core_fixture PUBLIC ${CMAKE_DL_LIBS})
add_dependencies(spillway_core_fixture simcuda_driver)

spillway_test(residency_test
  SOURCES residency/allocations_test.cc residency/device_residency_test.cc residency/device_thread_test.cc residency/launches_context_test.cc residency/launches_test.cc residency/pause_from_outside_test.cc residency/pauser_test.cc residency/releaser_test.cc residency/shared_device_test.cc
    residency/transfer/claim_queue_test.cc residency/transfer/copy_in_test.cc residency/transfer/demoter_test.cc
    residency/transfer/evictor_test.cc residency/state/reach_test.cc
    residency/transfer/faulter_test.cc residency/transfer/reclaimer_test.cc
    ../fakes/faulty_engine.cc ../fakes/memory_engine.cc
  DEPS spillway_core_fixture LABELS unit)
spillway_tests_by_file(core_tests
  SOURCES
    devices_test.cc driver/device_error_test.cc fragmentation_test.cc residency_contention_test.cc residency/audit_test.cc
    residency/plan/plan_runner_test.cc residency/plan/plan_throttle_test.cc residency/state/charges_test.cc
    residency/state/lending_test.cc
    residency/state/free_addresses_test.cc residency/transfer/mapping_test.cc
  DEPS spillway_core_fixture LABELS unit TIMEOUT 600)
# SPILLWAY_TEST_SEEDS=20 makes this one long.
spillway_test(residency_model_test
  SOURCES residency_model_test.cc core_model.cc core_coverage.cc model_worker.cc ../fakes/faulty_engine.cc ../fakes/memory_engine.cc
  DEPS spillway_core_fixture LABELS unit TIMEOUT 7200)
spillway_brief(residency_model_test "${CMAKE_COMMAND}" -E env SPILLWAY_TEST_SEEDS=2 $<TARGET_FILE:residency_model_test>)
spillway_test(allocator_units_test
  SOURCES driver/refusals_test.cc residency/state/block_table_test.cc residency/state/core_test.cc
    residency/state/launch_log_test.cc residency/state/read_side_sections_test.cc
    residency/state/stream_clock_test.cc residency/state/stream_events_test.cc residency/transfer/copy_streams_test.cc
  DEPS spillway_core_fixture LABELS unit)
set_source_files_properties(residency/state/stream_events_test.cc PROPERTIES
  COMPILE_DEFINITIONS SPILLWAY_SIMCUDA_DRIVER="$<TARGET_FILE:simcuda_driver>")
spillway_test(clean_copies_test
  SOURCES ../fakes/faulty_engine.cc driver/device_hash_test.cc early_copies_test.cc residency/state/clean_copies_test.cc
    residency/transfer/arrival_check_test.cc residency/state/standstill_test.cc residency/transfer/copy_out_test.cc residency/transfer/link_probe_test.cc
    residency/transfer/soft_blocks_test.cc residency/transfer/unseen_writes_test.cc residency/transfer/write_sampler_test.cc
  DEPS spillway_core_fixture LABELS unit)
# Every call fails once. Not with a sanitizer, whose own forms of these calls the wrappers would go around.
if(NOT SPILLWAY_ASAN AND NOT SPILLWAY_TSAN)
  include(${CMAKE_SOURCE_DIR}/tests/fakes/failing_calls.cmake)
  spillway_test(every_call_test
    SOURCES every_call_test.cc every_call_scenes.cc ../fakes/failing_calls.cc
    DEPS spillway_core_fixture LABELS nightly:every-call TIMEOUT 1800)
  spillway_wrap_calls(every_call_test)
  # Without the cases that wait for a refusal or for a late call.
  add_test(NAME every_call_once COMMAND every_call_test --gtest_filter=-*FromThenOn*:*AreLate*)
  set_tests_properties(every_call_once PROPERTIES TIMEOUT 900 LABELS "unit")
  spillway_brief(every_call_once every_call_test --gtest_filter=*CallsFailOnce/evict_to_disk:*CallsFailOnce/fault_from_disk:*CallsFailOnce/growth)
endif()
