// SPDX-License-Identifier: Apache-2.0
// Says that documents were left out because they could not be read: nothing is dropped in silence.
#pragma once

#include <cstdint>

#include "inputs/base_input.h"
#include "tasks/logging/console.h"
#include "tasks/logging/run_log.h"

namespace tessera {

class BrokenDocumentsReport {
 public:
  // What a resumed run was told of before.
  void restore(const InputState& state) { told_ = broken_documents(state).count; }
  // An event and a line, if there are more than were told of.
  void tell(const InputState& state, int64_t step, RunLog& log, Console& console);

 private:
  int64_t told_ = 0;
};

}  // namespace tessera
