// SPDX-License-Identifier: Apache-2.0
// A transport between "processes" that are threads of one test. A send is done only once it is
// received: nothing is buffered, so whoever counts on buffers hangs here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/runtime/comm/transport.h"

namespace tessera {

// What abort() throws here, where there is no process to end.
struct LoopbackAborted {
  int exit_code = 0;
};

// The transports of `size` processes, in order of rank; host `rank` is hosts[rank], or "host" for
// all. They stay joined as long as any of them lives.
std::vector<std::shared_ptr<Transport>> make_loopback(int size,
                                                      std::vector<std::string> hosts = {});

}  // namespace tessera
