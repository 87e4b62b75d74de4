// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/available_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace tessera {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// MemAvailable of /proc/meminfo: free memory and what caches would give back.
int64_t system_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  int64_t kib = 0;
  while (file >> name >> kib >> unit)
    if (name == "MemAvailable:") return kib * 1024;
  return kUnlimited;
}

int64_t number_in(const char* path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : kUnlimited;  // "max" is no number: no limit.
}

// What the group's use counts but the kernel would give back first.
int64_t group_cache() {
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string name;
  int64_t bytes = 0;
  while (file >> name >> bytes)
    if (name == "inactive_file") return bytes;
  return 0;
}

// Of control groups, version 2.
int64_t group_memory() {
  const int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const int64_t used = number_in("/sys/fs/cgroup/memory.current");
  return limit == kUnlimited || used == kUnlimited
             ? kUnlimited
             : std::max<int64_t>(0, limit - used + group_cache());
}

int64_t address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const int64_t pages = number_in("/proc/self/statm");
  const int64_t used = pages == kUnlimited ? 0 : pages * sysconf(_SC_PAGESIZE);
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - used);
}

}  // namespace

int64_t available_memory() { return std::min({system_memory(), group_memory(), address_space()}); }

}  // namespace tessera
