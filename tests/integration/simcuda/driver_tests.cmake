# Tests of the stand-in driver. They link the built libcuda.so.1 and reach it by run path.
spillway_tests_by_file(simcuda_driver_tests
  SOURCES
    driver_memory_test.cc driver_order_test.cc driver_faults_test.cc driver_kernels_test.cc driver_settings_test.cc
    driver_lookup_test.cc driver_stress_test.cc driver_model_test.cc driver_fault_mode_test.cc driver_sticky_test.cc
    driver_globals_test.cc driver_handles_test.cc driver_failures_test.cc driver_tensor_map_test.cc
    driver_capture_test.cc driver_graph_test.cc driver_conditional_test.cc driver_share_test.cc
    driver_hardware_test.cc driver_hardware_order_test.cc driver_memory_operations_test.cc driver_copy_batch_test.cc
    driver_prefetch_test.cc driver_ipc_test.cc driver_device_rights_test.cc driver_visible_devices_test.cc driver_waits_test.cc
  # The library does not export it.
  HELPERS "${CMAKE_SOURCE_DIR}/integration/simcuda/driver/machine/visible_devices.cc"
          "${CMAKE_SOURCE_DIR}/integration/simcuda/driver/machine/machine_memory.cc"
  DEPS simcuda_driver spillway_cuda_headers ${CMAKE_DL_LIBS} LABELS simcuda)

find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME driver_exports_test
  COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/driver_exports_test.py"
          "$<TARGET_FILE:simcuda_driver>" "${CMAKE_SOURCE_DIR}")
add_test(NAME driver_run_test
  COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/driver_run_test.py"
          "$<TARGET_FILE:simcuda-run>" "$<TARGET_FILE:simcuda_driver_tests>")
add_test(NAME driver_machine_test
  COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/driver_machine_test.py" "$<TARGET_FILE:simcuda_driver>")
set_tests_properties(driver_exports_test driver_run_test driver_machine_test PROPERTIES LABELS simcuda TIMEOUT 120)
