// SPDX-License-Identifier: Apache-2.0
// Streams and events of a GPU.
#pragma once

#include <memory>

#include "core/devices/device.h"
#include "plugins/cuda/device/context.h"

namespace tessera::cuda {

// Communication has the highest priority, so that it is not queued behind compute.
std::unique_ptr<Stream> make_cuda_stream(Context& context, StreamUse use);
std::unique_ptr<Event> make_cuda_event(Context& context);

// A stream or event of the functions above as the driver knows it.
CUstream native(Stream& stream);
CUevent native(Event& event);

}  // namespace tessera::cuda
