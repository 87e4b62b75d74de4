// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/progress.h"

#include "plugins/cuda/device/setting_words.h"

namespace tessera::cuda {

bool marks_progress() {
  static const bool marks = is_on(kProgressVariable);  // Read once: a mark follows each launch.
  return marks;
}

void write_mark(const Context& context, CUstream stream, const PinnedBuffer& words, int index,
                uint32_t value) {
  if (!marks_progress()) return;
  const auto to = reinterpret_cast<CUdeviceptr>(static_cast<uint32_t*>(words.data()) + index);
  // With CU_STREAM_WRITE_VALUE_DEFAULT what the work has written is visible to whoever reads the
  // word. cuda.h: this version of the function does not support the flag without that barrier.
  context.check(
      context.driver().cuStreamWriteValue32(stream, to, value, CU_STREAM_WRITE_VALUE_DEFAULT),
      "recording the progress");
}

}  // namespace tessera::cuda
