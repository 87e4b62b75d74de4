// SPDX-License-Identifier: Apache-2.0
// failures.log in a run's directory: why a run ended badly, one line per event in order of time.
// Any process of the run may append.
#pragma once

#include <filesystem>
#include <string_view>

namespace tessera {

// Appends a line with the time. Does nothing if the directory does not exist or is not writable:
// the same text is on stderr.
void log_failure(const std::filesystem::path& run_directory, std::string_view text);

}  // namespace tessera
