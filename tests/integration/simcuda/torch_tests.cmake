# Tests of PyTorch's operators on the stand-in GPU: scripts for the Python whose wheel the library is compiled against.
if(NOT TARGET simcuda_torch OR SPILLWAY_ASAN OR SPILLWAY_TSAN)
  return()  # a sanitizer's own library would have to come first in LD_PRELOAD
endif()
foreach(name ops async random copies errors asserts training graph)
  add_test(NAME simcuda_torch_${name}
    COMMAND "${CMAKE_BINARY_DIR}/bin/simcuda-run" --memory 2GiB --devices 2 --
            "${SPILLWAY_PYTHON}" -B "${CMAKE_CURRENT_SOURCE_DIR}/torch_${name}_test.py")
  set_tests_properties(simcuda_torch_${name} PROPERTIES
    TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "OMP_NUM_THREADS=1" LABELS "torch")
endforeach()
