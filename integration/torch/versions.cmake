# Finds the PyTorch releases to compile against, from the wheels alone (no find_package(Torch): it wants a toolkit).
# Included by the top CMakeLists.txt, where the options SPILLWAY_PYTHON and SPILLWAY_TORCH_PYTHONS are described.
# Sets SPILLWAY_HAVE_TORCH, SPILLWAY_TORCH_MINORS ("2_11;2_15": those with an environment to run in; the first is that
# of SPILLWAY_PYTHON) and SPILLWAY_TORCH_LIBRARY_MINORS (these, and those of which fetch_headers.py has kept headers).
# For each minor: SPILLWAY_TORCH_DIR_<minor>, SPILLWAY_TORCH_VERSION_<minor>, SPILLWAY_TORCH_RELEASE_<minor> (of
# torch.__version__), SPILLWAY_TORCH_CUDA_INCLUDE_<minor>, SPILLWAY_PYTHON_<minor> (environments only) and the target
# spillway_torch_headers_<minor>. It has the headers of PyTorch and of the CUDA runtime that the
# wheel was built with, and the ABI of strings of its libc10.so. SPILLWAY_TORCH_MINOR, SPILLWAY_TORCH_DIR and
# SPILLWAY_TORCH_VERSION are the first's.
set(SPILLWAY_HAVE_TORCH OFF)
set(SPILLWAY_TORCH_MINORS "")
set(SPILLWAY_TORCH_LIBRARY_MINORS "")

# spillway_read_torch_versions(PYTHONS HEADERS): the Pythons of versions.txt in order, and "RELEASE=FOLDER" of the
# headers that are there.
function(spillway_read_torch_versions pythons_result headers_result)
  set(file "${CMAKE_SOURCE_DIR}/integration/torch/versions.txt")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(STRINGS "${file}" lines REGEX "^[0-9]")
  set(pythons "")
  set(headers "")
  foreach(line IN LISTS lines)
    string(REPLACE " " ";" words "${line}")
    list(GET words 0 release)
    list(GET words 1 folder)
    if(line MATCHES " headers$" AND EXISTS "${CMAKE_SOURCE_DIR}/${folder}/torch/lib/libc10.so")
      list(APPEND headers "${release}=${CMAKE_SOURCE_DIR}/${folder}")
    elseif(NOT line MATCHES " headers$")
      list(APPEND pythons "${CMAKE_SOURCE_DIR}/${folder}/bin/python")
    endif()
  endforeach()
  set(${pythons_result} "${pythons}" PARENT_SCOPE)
  set(${headers_result} "${headers}" PARENT_SCOPE)
endfunction()

# spillway_torch_string_abi(VARIABLE LIBC10): 1 where its std::string is that of today, 0 where it is the one of before
# GCC 5, by the mangled name of a function that every PyTorch exports.
function(spillway_torch_string_abi result libc10)
  file(STRINGS "${libc10}" names REGEX "^_ZN3c106detail14torchCheckFailEPKcS2_jRK")
  if(names MATCHES "jRKSs(;|$)")
    set(${result} 0 PARENT_SCOPE)
  elseif(names MATCHES "jRKNSt7__cxx11")
    set(${result} 1 PARENT_SCOPE)
  else()
    message(FATAL_ERROR "${libc10} does not say which ABI its strings have: no c10::detail::torchCheckFail")
  endif()
endfunction()

# spillway_add_torch_release(RELEASE DIRECTORY CUDA_INCLUDE...): adds the PyTorch in `directory` to the minors for which
# a library is built, unless its minor is there.
macro(spillway_add_torch_release release directory)
  string(REGEX REPLACE "^([0-9]+)\\.([0-9]+).*" "\\1_\\2" spillway_torch_minor "${release}")
  if(NOT spillway_torch_minor IN_LIST SPILLWAY_TORCH_LIBRARY_MINORS)
    spillway_torch_string_abi(spillway_torch_abi "${directory}/lib/libc10.so")
    message(STATUS "PyTorch ${release} at ${directory}, string ABI ${spillway_torch_abi}, CUDA headers ${ARGN}")
    list(APPEND SPILLWAY_TORCH_LIBRARY_MINORS "${spillway_torch_minor}")
    set(SPILLWAY_TORCH_DIR_${spillway_torch_minor} "${directory}")
    set(SPILLWAY_TORCH_VERSION_${spillway_torch_minor} "${release}")
    # As PyTorch itself says it: a package's metadata may have another spelling.
    file(STRINGS "${directory}/version.py" spillway_torch_line REGEX "^__version__")
    string(REGEX REPLACE "^[^'\"]*['\"]([^'\"]*)['\"].*" "\\1" SPILLWAY_TORCH_RELEASE_${spillway_torch_minor}
           "${spillway_torch_line}")
    set(SPILLWAY_TORCH_CUDA_INCLUDE_${spillway_torch_minor} "${ARGN}")
    add_library(spillway_torch_headers_${spillway_torch_minor} INTERFACE)
    target_include_directories(spillway_torch_headers_${spillway_torch_minor} SYSTEM INTERFACE
      "${directory}/include" "${directory}/include/torch/csrc/api/include" ${ARGN})
    target_compile_definitions(spillway_torch_headers_${spillway_torch_minor} INTERFACE
      _GLIBCXX_USE_CXX11_ABI=${spillway_torch_abi})
  endif()
endmacro()

# spillway_add_torch(PYTHON): adds its PyTorch to both lists; a minor that is there already stays as it is. A wheel's
# headers of the runtime come without those of the compiler (crt/): an installed toolkit's, or those beside cuda.h.
macro(spillway_add_torch python)
  execute_process(
    COMMAND "${python}" -c "import importlib.util as u, importlib.metadata as m, os; print(os.path.dirname(u.find_spec('torch').origin)); print(m.version('torch'))"
    OUTPUT_VARIABLE spillway_torch_answer RESULT_VARIABLE spillway_torch_result ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(spillway_torch_result EQUAL 0)
    string(REPLACE "\n" ";" spillway_torch_answer "${spillway_torch_answer}")
    list(GET spillway_torch_answer 0 spillway_torch_dir)
    list(GET spillway_torch_answer 1 spillway_torch_version)
    file(GLOB spillway_torch_cuda "${spillway_torch_dir}/../nvidia/cu1[0-9]/include"
         "${spillway_torch_dir}/../nvidia/cuda_runtime/include" "${spillway_torch_dir}/../nvidia/cu[bsf]*/include")
    spillway_add_torch_release("${spillway_torch_version}" "${spillway_torch_dir}" ${spillway_torch_cuda})
    if(NOT spillway_torch_minor IN_LIST SPILLWAY_TORCH_MINORS)
      list(APPEND SPILLWAY_TORCH_MINORS "${spillway_torch_minor}")
      set(SPILLWAY_PYTHON_${spillway_torch_minor} "${python}")
    endif()
  endif()
endmacro()

if(SPILLWAY_TORCH)
  spillway_add_torch("${SPILLWAY_PYTHON}")
  if(SPILLWAY_TORCH_MINORS)
    set(SPILLWAY_HAVE_TORCH ON)
    list(GET SPILLWAY_TORCH_MINORS 0 SPILLWAY_TORCH_MINOR)
    set(SPILLWAY_TORCH_DIR "${SPILLWAY_TORCH_DIR_${SPILLWAY_TORCH_MINOR}}")
    set(SPILLWAY_TORCH_VERSION "${SPILLWAY_TORCH_VERSION_${SPILLWAY_TORCH_MINOR}}")
    spillway_read_torch_versions(spillway_torch_pythons spillway_torch_headers)
    if(NOT SPILLWAY_TORCH_PYTHONS STREQUAL "auto")
      set(spillway_torch_pythons "${SPILLWAY_TORCH_PYTHONS}")
    endif()
    foreach(python IN LISTS spillway_torch_pythons)
      spillway_add_torch("${python}")
    endforeach()
    foreach(entry IN LISTS spillway_torch_headers)
      string(REGEX MATCH "^([^=]+)=(.*)$" spillway_torch_answer "${entry}")
      spillway_add_torch_release("${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}/torch" "${CMAKE_MATCH_2}/cuda/include")
    endforeach()
  endif()
endif()
