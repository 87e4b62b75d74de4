// SPDX-License-Identifier: Apache-2.0
// Catch2's main, compiled once for all test programs. If TESSERA_CPU_LEVEL names a processor level
// that this machine lacks, or all selected test cases were skipped, the exit code says so
// (cmake/TesseraFolder.cmake).
#define CATCH_CONFIG_RUNNER
#include <algorithm>
#include <cstdio>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/devices/cpu/processor.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"

// HDF5 does not clean up at exit (core/io/hdf5_dataset.cc); its caches are not leaks.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }
// A test starts threads in a forked child, which ThreadSanitizer refuses by default.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace {

constexpr int kSkipped = 77;  // The exit code that ctest shows as skipped.
constexpr int kBadUsage = 2;

bool machine_has(tessera::CpuLevel level) {
  const std::vector<tessera::CpuLevel>& levels = tessera::machine_levels();
  return std::find(levels.begin(), levels.end(), level) != levels.end();
}

// Counts the test cases that were run.
using Listener = Catch::TestEventListenerBase;
struct Counter : Listener {
  using Listener::Listener;
  void testCaseEnded(const Catch::TestCaseStats&) override { ++count; }
  static inline int count = 0;
};
CATCH_REGISTER_LISTENER(Counter)

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
  const int result = Catch::Session().run(argc, argv);
  const bool all_skipped = Counter::count > 0 && Counter::count == tessera::tests_skipped();
  return result == 0 && all_skipped ? kSkipped : result;
}
