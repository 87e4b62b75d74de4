// SPDX-License-Identifier: Apache-2.0
// Whether all processes of a run see one directory. Each host may have a disk of its own under the
// same name; a run there would save checkpoints of which every host holds a part.
#pragma once

#include <chrono>
#include <filesystem>

#include "core/runtime/comm/process_group.h"

namespace tessera {

// Every process calls it, with what it takes for the run's directory; process 0's exists. Error, in
// all of them, if some do not see what process 0 writes there. Network file systems may show a new
// file late: `patience` is how long to look for it.
void check_shared(const std::filesystem::path& directory, ProcessGroup& processes,
                  std::chrono::milliseconds patience = std::chrono::seconds(60));

}  // namespace tessera
