// SPDX-License-Identifier: Apache-2.0
// Marks of progress: words of page-locked host memory that a stream writes between its launches. A
// fault of the GPU spares them, so they tell which launch failed, and which GPU is missing from a
// collective.
#pragma once

#include "plugins/cuda/device/context.h"
#include "plugins/cuda/device/pinned_buffer.h"

namespace tessera::cuda {

// "off" writes no marks: an error of a launch then names the whole run, and a collective that one
// GPU never joins is not reported.
inline constexpr const char* kProgressVariable = "TESSERA_CUDA_PROGRESS";
// Whether marks are written: by default. Error for an unknown value of the variable.
bool marks_progress();

// Word `index` of `words` becomes `value` when the work in the stream so far is done. Does nothing
// if marks are off.
void write_mark(const Context& context, CUstream stream, const PinnedBuffer& words, int index,
                uint32_t value);

}  // namespace tessera::cuda
