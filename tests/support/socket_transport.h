// SPDX-License-Identifier: Apache-2.0
// A transport between processes that a test forks, over pairs of sockets: one of them may be
// killed, and the others notice at once, as they do over MPI or TCP.
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
