// SPDX-License-Identifier: Apache-2.0
// Detects how this process was started (alone, by mpirun or by srun) and joins the others.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/comm/transport.h"

namespace tessera {

struct LaunchEnvironment {
  std::string by;  // "mpirun", "srun"; "": alone.
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // Among the processes of this host.
};

// Reads the environment.
LaunchEnvironment find_launch_environment();

// Joins the processes started together; null for a single process. Loads the transport's plugin
// from tessera/transports beside our libraries or from the given folders. Error if it is not built,
// or if the number of processes differs from the launcher's.
std::shared_ptr<Transport> join_processes(const LaunchEnvironment& launch,
                                          const std::vector<std::filesystem::path>& folders = {});

}  // namespace tessera
