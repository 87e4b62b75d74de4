# SPDX-License-Identifier: Apache-2.0
# Settings that affect compile time: optimization levels, unity files and precompiled headers.
# docs/performance.md, "Build time", has the gain of each.

# Headers of std and fmt that many files include.
set(TESSERA_COMMON_HEADERS <algorithm> <array> <chrono> <cmath> <cstddef> <cstdint> <cstring>
    <filesystem> <functional> <limits> <map> <memory> <mutex> <optional> <set> <span> <string>
    <string_view> <utility> <vector> <fmt/format.h> <fmt/ranges.h>)

# tessera_units(UNITS NAME SOURCE…): the files to compile instead of the sources. With TESSERA_UNITY
# these are generated files that include several sources, or contain them if they are tests, whose
# names would collide. (CMake's unity files contain absolute paths, so a compiler cache would miss in
# another clone.) Compiled separately are files that include themselves once per vector target, those
# with processor-specific instructions or their own flags, and tests with macros or with code after
# their anonymous namespace.
function(tessera_units result name)
  if(NOT TESSERA_UNITY)
    set(${result} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(special "HWY_TARGET_INCLUDE|immintrin.h|#pragma GCC|__attribute__\\(\\(target|gnu::target")
  if(name MATCHES "^test_")
    string(APPEND special "|\n#define|\n}  // namespace\n+[^}\n]")
  endif()
  set(units "")
  set(batch "")
  set(count 0)
  foreach(source ${ARGN})
    file(READ ${source} text)
    get_source_file_property(flags ${source} COMPILE_OPTIONS)
    if(text MATCHES "${special}" OR flags)
      list(APPEND units ${source})
    else()
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
      list(APPEND batch ${source})
      math(EXPR count "${count} + 1")
    endif()
    math(EXPR full "${count} % ${TESSERA_UNITY}")
    if(batch AND full EQUAL 0)
      tessera_unit(unit ${name} ${count} "${batch}")
      list(APPEND units ${unit})
      set(batch "")
    endif()
  endforeach()
  if(batch)
    tessera_unit(unit ${name} ${count} "${batch}")
    list(APPEND units ${unit})
  endif()
  set(${result} ${units} PARENT_SCOPE)
endfunction()

function(tessera_unit result name count sources)
  set(unit ${CMAKE_BINARY_DIR}/units/${name}_${count}.cc)
  if(name MATCHES "^test_")
    list(JOIN sources | tests)
    add_custom_command(OUTPUT ${unit} DEPENDS ${sources} ${CMAKE_SOURCE_DIR}/cmake/TestUnit.cmake
      COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -DOUTPUT=${unit} "-DTESTS=${tests}"
              -P ${CMAKE_SOURCE_DIR}/cmake/TestUnit.cmake
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} COMMENT "Joining files of ${name}" VERBATIM)
  else()
    list(TRANSFORM sources REPLACE "(.+)" "#include \"\\1\"\n")
    list(JOIN sources "" includes)
    file(CONFIGURE OUTPUT ${unit} CONTENT "// Made by cmake/TesseraCompile.cmake.\n${includes}" @ONLY)
  endif()
  # Suppresses two false warnings: a private class may have members of types in an anonymous
  # namespace, because its file is included here; and g++ 12 reports wrong string lengths in inlined
  # code (its bug 105329).
  set_source_files_properties(${unit} PROPERTIES COMPILE_OPTIONS
                              "-Wno-subobject-linkage;-Wno-stringop-overflow;-Wno-restrict")
  set(${result} ${unit} PARENT_SCOPE)
endfunction()

# tessera_headers(NAME HEADER…): precompiled headers for targets with the same flags as NAME.
function(tessera_headers name)
  set(source ${CMAKE_BINARY_DIR}/generated/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// CMake requires a source file.\n")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE fmt::fmt)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
if(TESSERA_PRECOMPILE)
  tessera_headers(common_headers ${TESSERA_COMMON_HEADERS})
  # g++ 13 and newer refuse precompiled headers of another optimization level.
  tessera_headers(host_headers ${TESSERA_COMMON_HEADERS})
  target_compile_options(host_headers PRIVATE $<$<CONFIG:Release>:-O1>)
endif()

# tessera_compile(TARGET [HOST]): uses precompiled headers with TESSERA_PRECOMPILE. HOST: code
# without inner loops, which is optimized less in a release.
function(tessera_compile target)
  cmake_parse_arguments(ARG "HOST" "" "" ${ARGN})
  set(headers common_headers)
  if(ARG_HOST)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    set(headers host_headers)
  endif()
  if(TESSERA_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${headers})
  endif()
endfunction()

# Files with performance-critical loops in a HOST target; each is compiled separately, and without
# the target's precompiled headers, which are of another optimization level.
function(tessera_optimize)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>"
                              SKIP_PRECOMPILE_HEADERS ON)
endfunction()
