# SPDX-License-Identifier: Apache-2.0
# Build options, warnings and compiler cache.
option(TESSERA_TESTS "Build the tests" ON)
set(TESSERA_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (address,undefined or thread)")
# Both are off in the preset `dev`: compiling files separately detects missing includes.
set(TESSERA_UNITY 0 CACHE STRING "How many files of a folder are compiled as one; 0: each alone")
option(TESSERA_PRECOMPILE "Precompile the headers of std and fmt" OFF)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

add_compile_options(-Wall -Wextra -Wno-missing-field-initializers)
# Makes source paths in errors and dumps relative to the tree, also if ccache has made the
# compiler's paths relative to the build folder.
cmake_path(RELATIVE_PATH CMAKE_SOURCE_DIR BASE_DIRECTORY ${CMAKE_BINARY_DIR}
           OUTPUT_VARIABLE TESSERA_SOURCE_FROM_BUILD)
add_compile_options(-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=
                    -fmacro-prefix-map=${TESSERA_SOURCE_FROM_BUILD}/=)
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
endif()
if(TESSERA_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fpch-preprocess)  # Required by ccache.
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)  # Relinking a library does not relink its users.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
# The build tree uses the run paths of the installed files. Otherwise CMake would pad them with
# empty entries, which the loader treats as the current directory.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # Libraries outside the system's directories.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")  # Run path of programs in the build tree,
if(NOT CMAKE_INSTALL_LIBDIR STREQUAL "lib")
  list(APPEND CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")  # and installed.
endif()
