// SPDX-License-Identifier: Apache-2.0
// A transport between simulated processes, which are threads of one test. A send completes only
// when it is received. Nothing is buffered, so code that relies on buffering hangs.
#pragma once

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

}  // namespace tessera
