// SPDX-License-Identifier: Apache-2.0
// Two transports for tests. Loopback connects simulated processes, which are threads of one test. A
// send completes only when it is received. Nothing is buffered, so code that relies on buffering
// hangs. The other uses socket pairs between processes that a test forks. If a process is killed,
// the others detect it at once, as with MPI or TCP.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/comm/transport.h"

namespace tessera {

// Thrown by abort(), because there is no process to end.
struct LoopbackAborted {
  int exit_code = 0;
};

// The transports of `size` processes, by rank. hosts[rank] is the host of a process, by default
// "host".
std::vector<std::shared_ptr<Transport>> make_loopback(int size,
                                                      std::vector<std::string> hosts = {});

// Forks `size` processes. Each runs `work` and exits with its result, or with 1 if it throws an
// Error. The caller must have no other threads. Returns the process ids by rank.
std::vector<pid_t> fork_processes(int size,
                                  const std::function<int(std::shared_ptr<Transport>)>& work);

}  // namespace tessera
