// SPDX-License-Identifier: Apache-2.0
// Taking a run's directory into use: made, locked, and, to begin again, cleared of the earlier run.
#pragma once

#include <filesystem>
#include <memory>

#include "tasks/run_directory/run_lock.h"

namespace tessera {

enum class Earlier { kKeep, kSetAside };

// For the one process that writes there; the lock is held while the result lives.
std::unique_ptr<RunLock> take_run_directory(const std::filesystem::path& directory,
                                            Earlier earlier);

}  // namespace tessera
