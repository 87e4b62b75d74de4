// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM as a flag, while there is one of these: long work stops at a good moment (a
// run has tasks/shutdown/stop_signal.h, which waits for a step and hears more signals). The
// second signal ends the process at once.
#pragma once

#include <atomic>

namespace tessera {

class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  const std::atomic<bool>* flag() const;
};

}  // namespace tessera
