// SPDX-License-Identifier: Apache-2.0
#include "plugins/runexp/gpus_of_place.h"

#include <sstream>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {

std::string gpus_of_place(int64_t place, int64_t devices, const std::string& visible) {
  std::vector<std::string> names;
  std::istringstream list(visible);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  std::vector<std::string> chosen;
  for (int64_t gpu = place * devices; gpu < (place + 1) * devices; ++gpu) {
    if (!visible.empty() && gpu >= std::ssize(names))
      fail(
          "{}={} has {} GPUs, but the trials that run at the same time use {} or more; give a "
          "lower --sweep_processes",
          kVisibleGpus, visible, names.size(), gpu + 1);
    chosen.push_back(visible.empty() ? std::to_string(gpu) : names[static_cast<size_t>(gpu)]);
  }
  return fmt::format("{}", fmt::join(chosen, ","));
}

}  // namespace tessera
