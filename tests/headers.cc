// The program around the headers that CMake compiles once for all tests (CMakeLists.txt, test_headers).
