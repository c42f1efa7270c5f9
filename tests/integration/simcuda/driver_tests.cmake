# Tests of the stand-in driver. They link the built libcuda.so.1 and reach it by run path.
function(simcuda_driver_test name)
  spillway_test(${name} SOURCES ${name}.cc DEPS simcuda_driver spillway_cuda_headers LABELS simcuda)
endfunction()

foreach(test driver_memory_test driver_order_test driver_faults_test driver_kernels_test driver_settings_test
             driver_lookup_test driver_stress_test driver_model_test driver_fault_mode_test driver_sticky_test driver_globals_test
             driver_handles_test driver_failures_test driver_tensor_map_test driver_capture_test driver_graph_test driver_conditional_test driver_share_test driver_hardware_test
             driver_hardware_order_test driver_memory_operations_test driver_copy_batch_test driver_prefetch_test driver_ipc_test driver_visible_devices_test driver_waits_test)
  simcuda_driver_test(${test})
endforeach()
target_link_libraries(driver_lookup_test PRIVATE ${CMAKE_DL_LIBS})
target_link_libraries(driver_failures_test PRIVATE ${CMAKE_DL_LIBS})
# The library does not export it.
target_sources(driver_visible_devices_test PRIVATE "${CMAKE_SOURCE_DIR}/integration/simcuda/driver/visible_devices.cc")

find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME driver_exports_test
  COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/driver_exports_test.py"
          "$<TARGET_FILE:simcuda_driver>" "${CMAKE_SOURCE_DIR}")
add_test(NAME driver_run_test
  COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/driver_run_test.py"
          "$<TARGET_FILE:simcuda-run>" "$<TARGET_FILE:driver_kernels_test>")
set_tests_properties(driver_exports_test driver_run_test PROPERTIES LABELS simcuda TIMEOUT 120)
