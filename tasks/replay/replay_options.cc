// SPDX-License-Identifier: Apache-2.0
#include "tasks/replay/replay_options.h"

#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

using SideKind = OtherSideChoice::Kind;

struct SideWord {
  std::string word, value;  // "threads", "N".
  SideKind kind;
};
const std::vector<SideWord>& side_words() {
  static const std::vector<SideWord> words = {{"threads", "N", SideKind::kThreads},
                                              {"device", "KIND", SideKind::kDevice},
                                              {"cpu_level", "LEVEL", SideKind::kCpuLevel},
                                              {"build", "RUNEXP", SideKind::kBuild},
                                              {"mesh", "SHAPE", SideKind::kMesh}};
  return words;
}

}  // namespace

OtherSideChoice parse_other_side(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string word = text.substr(0, colon);
  std::vector<std::string> words, forms;
  for (const SideWord& each : side_words()) {
    if (word == each.word && colon != std::string::npos && colon + 1 < text.size())
      return {each.kind, text.substr(colon + 1)};
    words.push_back(each.word);
    forms.push_back(each.word + ":" + each.value);
  }
  if (!text.empty() && std::filesystem::exists(text)) return {SideKind::kRecording, text};
  if (colon != std::string::npos || text.empty())
    fail("--against={}: expected {} or a recording{}", text, fmt::join(forms, ", "),
         did_you_mean(word, words));
  fail("--against={}: no such file; expected a recording that --record has written, or {}", text,
       fmt::join(forms, ", "));
}

}  // namespace tessera
