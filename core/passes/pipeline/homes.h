// SPDX-License-Identifier: Apache-2.0
// Which stages of a pipeline hold the inputs of a program. Every device's graph lacks the inputs
// that its stage does not hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// By the name of an input, the stages that hold it, ascending. Names that are not in it: all stages
// hold them. The same on every device.
using StageHomes = std::map<std::string, std::vector<int64_t>, std::less<>>;

inline bool is_home(const StageHomes& homes, std::string_view input, int64_t stage) {
  const auto found = homes.find(input);
  return found == homes.end() || std::ranges::find(found->second, stage) != found->second.end();
}

}  // namespace tessera
