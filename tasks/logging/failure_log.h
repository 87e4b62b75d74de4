// SPDX-License-Identifier: Apache-2.0
// failures.log in a run's directory: why a run ended badly, line by line, in the order it happened.
// Any process of a run may write there, also while another is being killed.
#pragma once

#include <filesystem>
#include <string_view>

namespace tessera {

// Adds a line with the time. A directory that is not there, or cannot be written, is passed over:
// the same text is on stderr.
void log_failure(const std::filesystem::path& run_directory, std::string_view text);

}  // namespace tessera
