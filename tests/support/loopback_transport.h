// SPDX-License-Identifier: Apache-2.0
// A transport between "processes" that are threads of one test. A send is done only once it is
// received: nothing is buffered, so code that relies on buffering hangs here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/runtime/comm/transport.h"

namespace tessera {

// Thrown by abort(), since there is no process to end.
struct LoopbackAborted {
  int exit_code = 0;
};

// The transports of `size` processes by rank. The host of a process is hosts[rank], by default
// "host".
std::vector<std::shared_ptr<Transport>> make_loopback(int size,
                                                      std::vector<std::string> hosts = {});

}  // namespace tessera
