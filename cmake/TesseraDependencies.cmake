# SPDX-License-Identifier: Apache-2.0
# Everything comes from Debian's packages (docs/adr/0001-dependencies.md).
find_package(fmt REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
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

# The serial OpenBLAS: our thread team calls it from each thread.
find_library(OPENBLAS_LIBRARY NAMES openblas
             PATHS /usr/lib/x86_64-linux-gnu/openblas-serial /usr/lib/aarch64-linux-gnu/openblas-serial
             NO_DEFAULT_PATH)
find_library(OPENBLAS_LIBRARY NAMES openblas REQUIRED)
find_path(OPENBLAS_INCLUDE NAMES cblas.h
          PATHS /usr/include/x86_64-linux-gnu/openblas-serial
                /usr/include/aarch64-linux-gnu/openblas-serial NO_DEFAULT_PATH)
find_path(OPENBLAS_INCLUDE NAMES cblas.h REQUIRED)
add_library(tessera_blas INTERFACE)
target_include_directories(tessera_blas SYSTEM INTERFACE ${OPENBLAS_INCLUDE})
target_link_libraries(tessera_blas INTERFACE ${OPENBLAS_LIBRARY})
add_library(Tessera::blas ALIAS tessera_blas)

find_library(ONEDNN_LIBRARY NAMES dnnl REQUIRED)
find_path(ONEDNN_INCLUDE NAMES oneapi/dnnl/dnnl.h REQUIRED)
add_library(tessera_onednn INTERFACE)
target_include_directories(tessera_onednn SYSTEM INTERFACE ${ONEDNN_INCLUDE})
target_link_libraries(tessera_onednn INTERFACE ${ONEDNN_LIBRARY})
add_library(Tessera::onednn ALIAS tessera_onednn)

# JSON; and what token files, text files and tokenizers of other tools are read with.
foreach(package simdjson sentencepiece libpcre2-8 libutf8proc libzstd blosc)
  pkg_check_modules(${package} REQUIRED IMPORTED_TARGET GLOBAL ${package})
endforeach()
