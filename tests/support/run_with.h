// SPDX-License-Identifier: Apache-2.0
// What a run of a test is told: the setting that all runs have, and the options of its mode.
#pragma once

#include <variant>

#include "tasks/modes/make_run.h"

namespace tessera {

struct RunWith : RunSetting {
  ModeOptions mode = TrainOptions{};

  // The options of this mode, which the run then has.
  template <typename Options>
  Options& of_mode() {
    if (!std::holds_alternative<Options>(mode)) mode = Options{};
    return std::get<Options>(mode);
  }
};

}  // namespace tessera
