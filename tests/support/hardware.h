// SPDX-License-Identifier: Apache-2.0
// The files of hardware/ for tests.
#pragma once

#include <string_view>

#include "tasks/planner/hardware/hardware.h"
#include "tests/support/source_tree.h"

namespace tessera {

inline std::filesystem::path hardware_folder() { return source_root() / "hardware"; }

inline Hardware hardware_named(std::string_view name) {
  return find_hardware(name, hardware_folder());
}

}  // namespace tessera
