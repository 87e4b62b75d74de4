// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM as a flag, while there is one of these: long work stops at a good moment. The
// second signal ends the process at once.
#pragma once

#include <atomic>

namespace tessera {

class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  const std::atomic<bool>* flag() const;
};

}  // namespace tessera
