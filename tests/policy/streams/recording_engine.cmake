# An engine that records what its predictor sees, for record.py: the prediction's sources are compiled into it, so that those
# of the library stay out. `cmake --build build --target recording_engine`
get_target_property(sources spillway_prediction SOURCES)
list(REMOVE_ITEM sources predictor.cc)
list(TRANSFORM sources PREPEND "${CMAKE_SOURCE_DIR}/integration/prediction/")
add_library(recording_engine SHARED EXCLUDE_FROM_ALL
  "${CMAKE_SOURCE_DIR}/integration/engine/c_api.cc" "${CMAKE_SOURCE_DIR}/integration/engine/engine.cc"
  ${sources} streams/recording_predictor.cc)
get_target_property(libraries spillway_engine LINK_LIBRARIES)
target_link_libraries(recording_engine PRIVATE ${libraries})
set_target_properties(recording_engine PROPERTIES OUTPUT_NAME spillway_engine
  LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/recording")
set_source_files_properties(streams/recording_predictor.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
