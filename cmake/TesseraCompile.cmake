# SPDX-License-Identifier: Apache-2.0
# How long the compiler works for a target: how much it optimizes, and what it reads once for many
# files. docs/performance.md, "Build time", has what each gains.

# The headers of std and fmt that many files include.
set(TESSERA_COMMON_HEADERS <algorithm> <array> <chrono> <cmath> <cstddef> <cstdint> <cstring>
    <filesystem> <functional> <limits> <map> <memory> <mutex> <optional> <set> <span> <string>
    <string_view> <utility> <vector> <fmt/format.h> <fmt/ranges.h>)

# Files that include themselves once for each vector target, and those with instructions of one
# processor, cannot share a translation unit.
function(tessera_keep_alone target)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    file(STRINGS ${source} special LIMIT_COUNT 1
         REGEX "HWY_TARGET_INCLUDE|immintrin.h|#pragma GCC|__attribute__\\(\\(target|gnu::target")
    if(special)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()

# tessera_headers(NAME HEADER…): precompiled headers, for targets whose flags are those of NAME.
function(tessera_headers name)
  set(source ${CMAKE_BINARY_DIR}/generated/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Only there because CMake wants a file.\n")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE fmt::fmt)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
if(TESSERA_PRECOMPILE)
  tessera_headers(common_headers ${TESSERA_COMMON_HEADERS})
endif()

# tessera_compile(TARGET [HOST]): by TESSERA_UNITY several files as one, by
# TESSERA_PRECOMPILE with precompiled headers. HOST: what has no inner loop is optimized less in a
# release.
function(tessera_compile target)
  cmake_parse_arguments(ARG "HOST" "" "" ${ARGN})
  if(ARG_HOST)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(TESSERA_UNITY)
    tessera_keep_alone(${target})
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${TESSERA_UNITY})
  endif()
  if(TESSERA_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM common_headers)
  endif()
endfunction()

# Files with loops that matter, in a target that is otherwise HOST; each is compiled alone.
function(tessera_optimize)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
endfunction()
