# The committed tables of driver functions against the installed headers, and against each other.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME driver_tables_test
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/driver_tables_test.py")
set_tests_properties(driver_tables_test PROPERTIES TIMEOUT 120 LABELS unit
  ENVIRONMENT "DRIVER_TABLES_SOURCE=${CMAKE_SOURCE_DIR};DRIVER_TABLES_INCLUDE=${SPILLWAY_CUDA_INCLUDE}")
