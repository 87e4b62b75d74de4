// SPDX-License-Identifier: Apache-2.0
#include "tasks/logging/corrupt_records.h"

#include <fmt/format.h>

namespace tessera {

void BrokenDocumentsReport::tell(const InputState& state, int64_t step, RunLog& log,
                                 Console& console) {
  const BrokenDocumentCount broken = broken_documents(state);
  if (broken.count <= told_) return;
  told_ = broken.count;
  log.event("broken_documents", step, {{"count", static_cast<double>(broken.count)}});
  console.say(fmt::format("step {}: {} broken document{} left out so far; the first: {}", step,
                          broken.count, broken.count == 1 ? " was" : "s were", broken.first));
}

}  // namespace tessera
