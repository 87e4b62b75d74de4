// SPDX-License-Identifier: Apache-2.0
// The CPU device: a thread team, huge-page memory and the kernels of this folder.
#pragma once

#include <memory>

#include "core/backend/backend.h"

namespace tessera {

// `threads` <= 0: all hardware threads this process may use.
std::unique_ptr<Device> make_cpu_device(int threads);

}  // namespace tessera
