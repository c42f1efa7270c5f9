# Finds CUDA's headers (12.4 or newer) into SPILLWAY_CUDA_INCLUDE: those of the toolkit in CUDA_HOME, of the wheels in the
# Python that was named (SPILLWAY_PYTHON), of an installed toolkit, of the wheels in build/venv. Older ones are passed by.
# The runtime's headers include some of the compiler's (crt/), which its wheels lack: SPILLWAY_CUDA_COMPILER_INCLUDE is the
# folder of a link to those beside the runtime's, those of Triton, which PyTorch brings, or those of a toolkit. Included
# by the top CMakeLists.txt.

# spillway_package_folders(PYTHON RESULT): where that Python keeps what was installed into it.
function(spillway_package_folders python result)
  execute_process(
    COMMAND "${python}" -c "import sys; print('\\n'.join(p for p in sys.path if p.endswith('-packages')))"
    OUTPUT_VARIABLE folders ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REPLACE "\n" ";" folders "${folders}")
  set(${result} "${folders}" PARENT_SCOPE)
endfunction()

# spillway_wheel_cuda_folders(PYTHON RESULT): where that Python's wheels may keep headers; CUDA 13's wheels use one
# folder, those of CUDA 12 one for each package.
function(spillway_wheel_cuda_folders python result)
  spillway_package_folders("${python}" folders)
  set(found "")
  foreach(folder IN LISTS folders)
    file(GLOB of_cuda_13 "${folder}/nvidia/cu1[0-9]/include")
    list(APPEND found ${of_cuda_13} "${folder}/nvidia/cuda_runtime/include")
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# spillway_cuda_version_of(FOLDER RESULT): CUDA_VERSION of its cuda.h; 0 where there is none.
function(spillway_cuda_version_of folder result)
  set(version 0)
  if(EXISTS "${folder}/cuda.h")
    file(STRINGS "${folder}/cuda.h" line REGEX "^#define CUDA_VERSION [0-9]+")
    if(line MATCHES "([0-9]+)$")
      set(version "${CMAKE_MATCH_1}")
    endif()
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

set(spillway_oldest_cuda 12040)
if(NOT DEFINED SPILLWAY_SYSTEM_CUDA_FOLDERS)
  set(SPILLWAY_SYSTEM_CUDA_FOLDERS /usr/local/cuda/include /usr/local/cuda/targets/x86_64-linux/include /usr/include)
endif()
if(NOT SPILLWAY_CUDA_INCLUDE)
  spillway_wheel_cuda_folders("${SPILLWAY_PYTHON}" spillway_named_wheels)
  spillway_wheel_cuda_folders("${CMAKE_SOURCE_DIR}/build/venv/bin/python" spillway_own_wheels)
  set(spillway_too_old "")
  foreach(folder IN ITEMS
      "$ENV{CUDA_HOME}/include" "$ENV{CUDA_HOME}/targets/x86_64-linux/include"
      "$ENV{CUDA_PATH}/include" "$ENV{CUDA_PATH}/targets/x86_64-linux/include"
      ${spillway_named_wheels} ${SPILLWAY_SYSTEM_CUDA_FOLDERS} ${spillway_own_wheels})
    spillway_cuda_version_of("${folder}" spillway_cuda_version)
    if(spillway_cuda_version GREATER_EQUAL spillway_oldest_cuda)
      set(SPILLWAY_CUDA_INCLUDE "${folder}" CACHE PATH "The folder of cuda.h (CUDA 12.4 or newer)")
      message(STATUS "CUDA headers: ${folder} (${spillway_cuda_version})")
      break()
    elseif(spillway_cuda_version GREATER 0)
      string(APPEND spillway_too_old " ${folder} has CUDA ${spillway_cuda_version}.")
    endif()
  endforeach()
endif()
spillway_cuda_version_of("${SPILLWAY_CUDA_INCLUDE}" spillway_cuda_version)
if(spillway_cuda_version LESS spillway_oldest_cuda)
  message(FATAL_ERROR "No cuda.h of CUDA 12.4 or newer found.${spillway_too_old} Name a Python with PyTorch, whose wheels "
                      "bring the headers (-DSPILLWAY_PYTHON=/path/to/python), or make build/venv: python3 -m venv build/venv "
                      "&& build/venv/bin/pip install torch==2.11.0; or install a CUDA toolkit and set CUDA_HOME.")
endif()

# spillway_triton_folders(PYTHON RESULT): where that Python's Triton may keep headers.
function(spillway_triton_folders python result)
  spillway_package_folders("${python}" folders)
  list(TRANSFORM folders APPEND "/triton/backends/nvidia/include")
  set(${result} "${folders}" PARENT_SCOPE)
endfunction()

set(SPILLWAY_CUDA_COMPILER_INCLUDE "${CMAKE_BINARY_DIR}/cuda_compiler_headers")
spillway_triton_folders("${SPILLWAY_PYTHON}" spillway_named_triton)
spillway_triton_folders("${CMAKE_SOURCE_DIR}/build/venv/bin/python" spillway_own_triton)
set(spillway_crt "")
# An installed toolkit comes last: it may be older than the runtime's headers that were found.
foreach(folder IN ITEMS "${SPILLWAY_CUDA_INCLUDE}" ${spillway_named_triton} ${spillway_own_triton} ${SPILLWAY_SYSTEM_CUDA_FOLDERS})
  if(EXISTS "${folder}/crt/host_config.h")
    set(spillway_crt "${folder}/crt")
    break()
  endif()
endforeach()
if(NOT spillway_crt)
  message(FATAL_ERROR "No crt/host_config.h of CUDA found. Name a Python with PyTorch and Triton (-DSPILLWAY_PYTHON=/path/to/python), "
                      "or install a CUDA toolkit and set CUDA_HOME.")
endif()
message(STATUS "CUDA's headers of the compiler: ${spillway_crt}")
file(MAKE_DIRECTORY "${SPILLWAY_CUDA_COMPILER_INCLUDE}")
file(CREATE_LINK "${spillway_crt}" "${SPILLWAY_CUDA_COMPILER_INCLUDE}/crt" SYMBOLIC)
