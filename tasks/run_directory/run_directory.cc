// SPDX-License-Identifier: Apache-2.0
#include "tasks/run_directory/run_directory.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAside = "before_restart_";

// What an earlier run wrote goes to a folder of its own below the directory; the lock stays.
void set_aside(const fs::path& directory) {
  int number = 1;
  while (fs::exists(directory / fmt::format("{}{}", kAside, number))) ++number;
  std::vector<fs::path> written;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name != "lock" && !name.starts_with(kAside)) written.push_back(entry.path());
  }
  if (written.empty()) return;
  const fs::path aside = directory / fmt::format("{}{}", kAside, number);
  fs::create_directory(aside);
  for (const fs::path& path : written) fs::rename(path, aside / path.filename());
}

}  // namespace

std::unique_ptr<RunLock> take_run_directory(const fs::path& directory, Earlier earlier) {
  fs::create_directories(directory);
  auto lock = std::make_unique<RunLock>(directory);
  if (earlier == Earlier::kSetAside) set_aside(directory);
  return lock;
}

}  // namespace tessera
