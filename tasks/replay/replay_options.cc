// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/replay_options.h"

#include <array>
#include <cstdlib>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

using SideKind = OtherSideChoice::Kind;

constexpr std::array<std::pair<std::string_view, SideKind>, 5> kSideWords = {
    {{"threads", SideKind::kThreads},
     {"device", SideKind::kDevice},
     {"cpu_level", SideKind::kCpuLevel},
     {"build", SideKind::kBuild},
     {"mesh", SideKind::kMesh}}};

}  // namespace

OtherSideChoice parse_other_side(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string word = text.substr(0, colon);
  if (colon != std::string::npos)
    for (const auto& [name, kind] : kSideWords)
      if (word == name && colon + 1 < text.size()) return {kind, text.substr(colon + 1)};
  if (!text.empty() && std::filesystem::exists(text)) return {SideKind::kRecording, text};
  const std::vector<std::string> words = {"threads:N", "device:KIND", "cpu_level:LEVEL",
                                          "build:RUNEXP", "mesh:SHAPE"};
  if (colon != std::string::npos || text.empty())
    fail("--against={}: expected {} or a recording{}", text, fmt::join(words, ", "),
         did_you_mean(word, {"threads", "device", "cpu_level", "build", "mesh"}));
  fail("--against={}: no such file; expected a recording that --record has written, or {}", text,
       fmt::join(words, ", "));
}

}  // namespace tessera
