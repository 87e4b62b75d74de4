// SPDX-License-Identifier: Apache-2.0
// A transport between processes that a test forks, over socket pairs. If one of them is killed, the
// others notice at once, as over MPI or TCP.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "core/runtime/comm/transport.h"

namespace tessera {

// Forks `size` processes; each runs `work` and exits with what it returns (1 if it throws an
// Error). Called from a process without other threads. Returns their process ids by rank.
std::vector<pid_t> fork_processes(int size,
                                  const std::function<int(std::shared_ptr<Transport>)>& work);

}  // namespace tessera
