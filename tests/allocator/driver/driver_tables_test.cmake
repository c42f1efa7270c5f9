# The committed tables of driver functions against the installed headers, and against each other.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME driver_tables_test
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/driver_tables_test.py")
set_tests_properties(driver_tables_test PROPERTIES TIMEOUT 120 LABELS unit
  ENVIRONMENT "DRIVER_TABLES_SOURCE=${CMAKE_SOURCE_DIR};DRIVER_TABLES_INCLUDE=${SPILLWAY_CUDA_INCLUDE}")

add_test(NAME newest_headers_test
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/newest_headers_test.py")
set_tests_properties(newest_headers_test PROPERTIES TIMEOUT 300 LABELS nightly:public-tables SKIP_RETURN_CODE 77
  ENVIRONMENT "DRIVER_TABLES_SOURCE=${CMAKE_SOURCE_DIR};DRIVER_TABLES_PYTHON=${SPILLWAY_PYTHON}")
