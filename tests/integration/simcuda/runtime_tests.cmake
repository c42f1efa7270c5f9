# Tests of the stand-in runtime. The driver comes by LD_LIBRARY_PATH, as simcuda-run gives it.
if(NOT TARGET simcuda_runtime)
  return()
endif()
set(runtime_source "${CMAKE_SOURCE_DIR}/integration/simcuda/runtime")
find_package(Python3 REQUIRED COMPONENTS Interpreter)

foreach(runtime IN ITEMS simcuda_runtime simcuda_runtime_12)
  if(TARGET ${runtime})
    set(symbols required_symbols.txt)
    if(runtime STREQUAL "simcuda_runtime_12")
      set(symbols required_symbols_12.txt)
    endif()
    add_test(NAME ${runtime}_exports
      COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/runtime_symbols_test.py" exports
              $<TARGET_FILE:${runtime}> "${runtime_source}/${symbols}"
              $<TARGET_PROPERTY:${runtime},SIMCUDA_RUNTIME_HEADERS> "${runtime_source}/errors.def")
    set_tests_properties(${runtime}_exports PROPERTIES TIMEOUT 60 LABELS simcuda)
  endif()
endforeach()

# A driver that logs how it is reached; named like the real one, so it has a folder of its own.
add_library(simcuda_lookup_driver SHARED runtime_lookup_driver.cc)
target_link_libraries(simcuda_lookup_driver PRIVATE spillway_flags spillway_cuda_headers)
set_target_properties(simcuda_lookup_driver PROPERTIES
  OUTPUT_NAME cuda SUFFIX .so.1 LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/lookup_driver")
target_link_options(simcuda_lookup_driver PRIVATE -Wl,-soname,libcuda.so.1)
set_target_properties(simcuda_lookup_driver PROPERTIES NO_SONAME ON)
if(NOT SPILLWAY_ASAN AND NOT SPILLWAY_TSAN)  # a sanitizer's own library would have to come first in LD_PRELOAD
  add_test(NAME simcuda_runtime_lookup
    COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/runtime_lookup_test.py"
            $<TARGET_FILE:simcuda_runtime> "${runtime_source}/driver_entries.def"
            $<TARGET_FILE_DIR:simcuda_lookup_driver>)
  set_tests_properties(simcuda_runtime_lookup PROPERTIES TIMEOUT 120 LABELS simcuda)
endif()

spillway_test(simcuda_runtime_api_test SOURCES runtime_api_test.cc DEPS simcuda_runtime ${CMAKE_DL_LIBS} TIMEOUT 120 LABELS simcuda)
set_tests_properties(simcuda_runtime_api_test PROPERTIES
  ENVIRONMENT "LD_LIBRARY_PATH=${SPILLWAY_SIMCUDA_DIR};SIMCUDA_MEMORY=1GiB")

add_library(simcuda_operators_fake SHARED runtime_operators_fake.cc)
target_link_libraries(simcuda_operators_fake PRIVATE spillway_flags ${CMAKE_DL_LIBS})
set_target_properties(simcuda_operators_fake PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
if(NOT SPILLWAY_ASAN AND NOT SPILLWAY_TSAN)
  add_test(NAME simcuda_runtime_operators
    COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/runtime_operators_test.py"
            $<TARGET_FILE:simcuda_runtime> $<TARGET_FILE:simcuda_operators_fake> "${SPILLWAY_SIMCUDA_DIR}")
  set_tests_properties(simcuda_runtime_operators PROPERTIES TIMEOUT 120 LABELS simcuda)
endif()

foreach(minor IN LISTS SPILLWAY_TORCH_MINORS)
  get_filename_component(runtime_site_packages "${SPILLWAY_TORCH_DIR_${minor}}" DIRECTORY)
  add_test(NAME simcuda_runtime_wheel_imports_${minor}
    COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/runtime_symbols_test.py" wheel
            "${runtime_source}/required_symbols.txt" "${runtime_source}/required_symbols_12.txt" "${runtime_site_packages}")
  set_tests_properties(simcuda_runtime_wheel_imports_${minor} PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77 LABELS simcuda)
  if(NOT SPILLWAY_ASAN AND NOT SPILLWAY_TSAN)
    add_test(NAME simcuda_runtime_torch_${minor}
      COMMAND "${CMAKE_BINARY_DIR}/bin/simcuda-run" --memory 1GiB --devices 2 --
              "${SPILLWAY_PYTHON_${minor}}" "${CMAKE_CURRENT_SOURCE_DIR}/runtime_torch_test.py")
    set_tests_properties(simcuda_runtime_torch_${minor} PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 LABELS "simcuda;torch")
  endif()
endforeach()
