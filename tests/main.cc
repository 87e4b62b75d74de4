// SPDX-License-Identifier: Apache-2.0
// Catch2's main, compiled once for all test programs. Where TESSERA_CPU_LEVEL names a processor
// level that this machine lacks, nothing is run and the exit code says so
// (cmake/TesseraFolder.cmake).
#define CATCH_CONFIG_RUNNER
#include <algorithm>
#include <cstdio>

#include <catch2/catch.hpp>
#include <fmt/core.h>

#include "core/backend/cpu/features.h"
#include "core/base/error.h"

// HDF5 is told not to clean up at exit (core/base/hdf5_internal.cc); its caches are no leaks.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

namespace {

constexpr int kSkipped = 77;  // What ctest is told to show as skipped.
constexpr int kBadUsage = 2;

bool machine_has(tessera::CpuLevel level) {
  const std::vector<tessera::CpuLevel>& levels = tessera::machine_levels();
  return std::find(levels.begin(), levels.end(), level) != levels.end();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<tessera::CpuLevel> level = tessera::requested_level();
    if (level && !machine_has(*level)) {
      fmt::print("skipped: this processor has no {}\n", tessera::level_name(*level));
      return kSkipped;
    }
  } catch (const tessera::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return kBadUsage;
  }
  return Catch::Session().run(argc, argv);
}
