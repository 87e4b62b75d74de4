// SPDX-License-Identifier: Apache-2.0
// The error of a launch that failed on a device after it was enqueued.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/error.h"

namespace tessera {

// Thrown by a stream that finds out which launch failed, so that the run can name the op.
class LaunchFailure : public Error {
 public:
  LaunchFailure(int64_t launch, std::string_view message) : Error(message), launch_(launch) {}
  // Launches of the stream that were done before it, since the last synchronize() that succeeded.
  int64_t launch() const { return launch_; }

 private:
  int64_t launch_;
};

}  // namespace tessera
