// SPDX-License-Identifier: Apache-2.0
// --watch=RUN: the report of a run, served on this machine and refreshed while the run goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace tessera {

// Serves until Ctrl-C. Port 0: one that is free. `ready` is called with the address of the page
// ("http://127.0.0.1:40213/") when a browser may open it. Error if the directory is not a run's, or
// the port cannot be used.
void watch_run(const std::filesystem::path& run_directory, uint16_t port,
               const std::function<void(const std::string& address)>& ready);

}  // namespace tessera
