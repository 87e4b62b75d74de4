# SPDX-License-Identifier: Apache-2.0
# What tests/bench/compare.py runs besides runexp; built on request (ninja dump_batches).
add_executable(dump_batches EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/bench/dump_batches.cc)
target_link_libraries(dump_batches PRIVATE plugins)
