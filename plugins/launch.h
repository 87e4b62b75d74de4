// SPDX-License-Identifier: Apache-2.0
// How this process was started: alone, or as one of several by mpirun or srun, which it then joins.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/comm/transport.h"

namespace tessera {

struct Launch {
  std::string by;  // "mpirun", "srun"; empty: alone.
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // Among those of this host.
};

// As the environment says.
Launch find_launch();

// Joins the processes started together with this one; null if it is alone. Loads the transport's
// plugin, from tessera/transports beside our libraries or from the folders given. Error if it is
// not built, or if those that joined are not those that were started.
std::shared_ptr<Transport> join_processes(const Launch& launch,
                                          const std::vector<std::filesystem::path>& folders = {});

}  // namespace tessera
