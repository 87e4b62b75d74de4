// SPDX-License-Identifier: Apache-2.0
// Errors of launches on devices that run them after they were enqueued.
#pragma once

#include "core/base/error.h"

namespace tessera {

// The launch that is being enqueued cannot be done. Those before it are not affected.
struct LaunchRefused : Error {
  using Error::Error;
};

// A launch that was enqueued before has failed, perhaps one of another stream of the device.
// Stream::progress() tells which launches it may be.
struct LaunchFailure : Error {
  using Error::Error;
};

}  // namespace tessera
