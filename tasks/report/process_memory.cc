// SPDX-License-Identifier: Apache-2.0
#include "tasks/report/process_memory.h"

#include <unistd.h>

#include <fstream>

namespace tessera {

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  return file >> total >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace tessera
