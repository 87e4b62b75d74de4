// SPDX-License-Identifier: Apache-2.0
// A transport over socket pairs between processes that a test forks. If a process is killed, the
// others detect it at once, as with MPI or TCP.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "core/runtime/comm/transport.h"

namespace tessera {

// Forks `size` processes. Each runs `work` and exits with its result, or with 1 if it throws an
// Error. The caller must have no other threads. Returns the process ids by rank.
std::vector<pid_t> fork_processes(int size,
                                  const std::function<int(std::shared_ptr<Transport>)>& work);

}  // namespace tessera
