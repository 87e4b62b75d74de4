// SPDX-License-Identifier: Apache-2.0
// Catch2's main, compiled once for all test programs.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>

// HDF5 is told not to clean up at exit (core/base/hdf5_internal.cc); its caches are no leaks.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }
