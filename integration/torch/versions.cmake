# Finds the PyTorch releases to compile against, from the wheels alone (no find_package(Torch): it wants a toolkit).
# Included by the top CMakeLists.txt, where the options SPILLWAY_PYTHON and SPILLWAY_TORCH_PYTHONS are described.
# Sets SPILLWAY_HAVE_TORCH and SPILLWAY_TORCH_MINORS ("2_11;2_15"; the first is that of SPILLWAY_PYTHON), and for each
# minor SPILLWAY_TORCH_DIR_<minor>, SPILLWAY_TORCH_VERSION_<minor>, SPILLWAY_PYTHON_<minor> and the target
# spillway_torch_headers_<minor>. SPILLWAY_TORCH_MINOR, SPILLWAY_TORCH_DIR and SPILLWAY_TORCH_VERSION are the first's.
set(SPILLWAY_HAVE_TORCH OFF)
set(SPILLWAY_TORCH_MINORS "")

# spillway_read_torch_versions(VARIABLE): the Pythons of versions.txt in order.
function(spillway_read_torch_versions result)
  set(file "${CMAKE_SOURCE_DIR}/integration/torch/versions.txt")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(STRINGS "${file}" lines REGEX "^[0-9]")
  set(pythons "")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[^ ]+ +" "" folder "${line}")
    list(APPEND pythons "${CMAKE_SOURCE_DIR}/${folder}/bin/python")
  endforeach()
  set(${result} "${pythons}" PARENT_SCOPE)
endfunction()

# spillway_add_torch(PYTHON): adds its PyTorch to the list; a minor that is there already stays as it is.
macro(spillway_add_torch python)
  execute_process(
    COMMAND "${python}" -c "import importlib.util as u, importlib.metadata as m, os; print(os.path.dirname(u.find_spec('torch').origin)); print(m.version('torch'))"
    OUTPUT_VARIABLE spillway_torch_answer RESULT_VARIABLE spillway_torch_result ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(spillway_torch_result EQUAL 0)
    string(REPLACE "\n" ";" spillway_torch_answer "${spillway_torch_answer}")
    list(GET spillway_torch_answer 0 spillway_torch_dir)
    list(GET spillway_torch_answer 1 spillway_torch_version)
    string(REGEX REPLACE "^([0-9]+)\\.([0-9]+).*" "\\1_\\2" spillway_torch_minor "${spillway_torch_version}")
    if(NOT spillway_torch_minor IN_LIST SPILLWAY_TORCH_MINORS)
      message(STATUS "PyTorch ${spillway_torch_version} at ${spillway_torch_dir}")
      list(APPEND SPILLWAY_TORCH_MINORS "${spillway_torch_minor}")
      set(SPILLWAY_TORCH_DIR_${spillway_torch_minor} "${spillway_torch_dir}")
      set(SPILLWAY_TORCH_VERSION_${spillway_torch_minor} "${spillway_torch_version}")
      set(SPILLWAY_PYTHON_${spillway_torch_minor} "${python}")
      add_library(spillway_torch_headers_${spillway_torch_minor} INTERFACE)
      target_include_directories(spillway_torch_headers_${spillway_torch_minor} SYSTEM INTERFACE
        "${spillway_torch_dir}/include" "${spillway_torch_dir}/include/torch/csrc/api/include")
      target_compile_definitions(spillway_torch_headers_${spillway_torch_minor} INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
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
    set(spillway_torch_others "${SPILLWAY_TORCH_PYTHONS}")
    if(spillway_torch_others STREQUAL "auto")
      spillway_read_torch_versions(spillway_torch_others)
    endif()
    foreach(python IN LISTS spillway_torch_others)
      spillway_add_torch("${python}")
    endforeach()
  endif()
endif()
