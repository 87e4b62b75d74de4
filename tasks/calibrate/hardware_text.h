// SPDX-License-Identifier: Apache-2.0
// A hardware file as text, for files that programs write.
#pragma once

#include <string>

#include "tasks/hardware/hardware.h"

namespace tessera {

// TOML that read_hardware() reads. `comment`: lines at its head, each without its "# ".
std::string hardware_text(const HardwareFile& file, const std::string& comment);

}  // namespace tessera
