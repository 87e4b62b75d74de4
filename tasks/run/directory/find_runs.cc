// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/directory/find_runs.h"

#include <algorithm>
#include <system_error>

#include "core/base/error.h"

namespace tessera {

namespace fs = std::filesystem;

bool is_run(const fs::path& directory) {
  std::error_code ignored;
  return fs::is_regular_file(directory / "hparams.toml", ignored) ||
         fs::is_regular_file(directory / "metrics.jsonl", ignored);
}

std::vector<fs::path> runs_below(const fs::path& directory, size_t most, int levels) {
  std::vector<fs::path> found;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(
           directory, fs::directory_options::skip_permission_denied, error);
       !error && at != fs::recursive_directory_iterator() && found.size() < most;
       at.increment(error)) {
    if (at.depth() + 1 >= levels) at.disable_recursion_pending();
    if (is_run(at->path())) found.push_back(at->path());
  }
  std::ranges::sort(found);
  return found;
}

std::vector<fs::path> runs_of(const fs::path& directory) {
  std::vector<fs::path> found;
  if (!is_run(directory)) found = runs_below(directory, std::string::npos, 1);
  if (found.empty()) return {directory};
  return found;
}

std::string did_you_mean_run(const fs::path& directory) {
  constexpr size_t kMostSearched = 500;
  // A '/' at the end makes an empty file name.
  const fs::path path = directory.has_filename() ? directory : directory.parent_path();
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> names;
  for (const fs::path& run : runs_below(parent, kMostSearched))
    names.push_back(run.lexically_relative(parent).string());
  return did_you_mean(path.filename().string(), names);
}

}  // namespace tessera
