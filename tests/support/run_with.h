// SPDX-License-Identifier: Apache-2.0
// Helpers of tests that run a mode: the settings of all runs, and the options of the mode.
#pragma once

#include <variant>

#include "tasks/modes/make_run.h"

namespace tessera {

struct RunWith : RunSetting {
  ModeOptions mode = TrainOptions{};

  // Sets the options of the mode that is run.
  template <typename Options>
  Options& of_mode() {
    if (!std::holds_alternative<Options>(mode)) mode = Options{};
    return std::get<Options>(mode);
  }
};

}  // namespace tessera
