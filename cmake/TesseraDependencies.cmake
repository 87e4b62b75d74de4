# SPDX-License-Identifier: Apache-2.0
# All dependencies are Debian packages (docs/adr/0001-dependencies.md).
if(POLICY CMP0167)
  cmake_policy(SET CMP0167 NEW)  # Boost's own configuration files.
endif()
find_package(fmt REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(LibLZMA REQUIRED)
find_package(BZip2 REQUIRED)
find_package(Boost REQUIRED COMPONENTS filesystem program_options)
find_package(hwy QUIET)
find_package(PkgConfig REQUIRED)
find_package(tomlplusplus REQUIRED)
if(NOT TARGET hwy::hwy)
  pkg_check_modules(hwy REQUIRED IMPORTED_TARGET GLOBAL libhwy)
  add_library(hwy::hwy ALIAS PkgConfig::hwy)
endif()

set(HDF5_PREFER_PARALLEL OFF)
find_package(HDF5 REQUIRED COMPONENTS C)
add_library(tessera_hdf5 INTERFACE)
target_include_directories(tessera_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(tessera_hdf5 INTERFACE ${HDF5_C_LIBRARIES})
add_library(Tessera::hdf5 ALIAS tessera_hdf5)

# JSON, HTTP, and libraries that read token files, text files and tokenizers of other tools.
foreach(package simdjson libcurl libcrypto oniguruma libutf8proc libzstd blosc)
  pkg_check_modules(${package} REQUIRED IMPORTED_TARGET GLOBAL ${package})
endforeach()

# The allocator of runexp: a graph is many small allocations, which glibc's malloc makes and frees in
# twice the time. Sanitizers bring their own.
if(NOT TESSERA_SANITIZE)
  pkg_check_modules(jemalloc REQUIRED IMPORTED_TARGET GLOBAL jemalloc)
  set(TESSERA_ALLOCATOR PkgConfig::jemalloc)
endif()

# Not by pkg-config: Debian 13's sentencepiece.pc requires protobuf-lite, whose development files
# libsentencepiece-dev does not install.
find_path(SENTENCEPIECE_INCLUDE sentencepiece_processor.h REQUIRED)
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train REQUIRED)
add_library(tessera_sentencepiece INTERFACE)
target_include_directories(tessera_sentencepiece SYSTEM INTERFACE ${SENTENCEPIECE_INCLUDE})
target_link_libraries(tessera_sentencepiece
                      INTERFACE ${SENTENCEPIECE_LIBRARY} ${SENTENCEPIECE_TRAIN_LIBRARY})
add_library(Tessera::sentencepiece ALIAS tessera_sentencepiece)
