// SPDX-License-Identifier: Apache-2.0
#include "tasks/decode/sample_view.h"

#include <fmt/format.h>

#include "core/base/plain_nan.h"
#include "tasks/decode/prompt_text.h"
#include "tasks/logging/printable.h"

namespace tessera {
namespace {

std::string why(Finish finish) {
  switch (finish) {
    case Finish::kStopToken:
      return "ended by a stop token";
    case Finish::kStopString:
      return "ended by a stop string";
    case Finish::kLength:
      return "cut at its length";
  }
  return "";
}

}  // namespace

std::string sample_view(const DecodedExample& example, SampleIds shown) {
  const auto ids_line = [&](const std::vector<int32_t>& ids, const std::string& text) {
    const std::string line = token_ids_text(ids);
    return shown == SampleIds::kHidden || line == text ? std::string() : "\nids: " + line;
  };
  std::string view =
      fmt::format("--- prompt {}\n{}", example.number + 1, printable(example.prompt));
  view += ids_line(example.prompt_ids, example.prompt);
  for (size_t i = 0; i < example.samples.size(); ++i) {
    const DecodedSample& sample = example.samples[i];
    view += fmt::format("\n--- continuation{}: {} token{}, {}, log-probability {:.2f}",
                        example.samples.size() > 1 ? fmt::format(" {}", i + 1) : "",
                        sample.ids.size(), sample.ids.size() == 1 ? "" : "s", why(sample.finish),
                        plain_nan(sample.log_probability));
    if (sample.score != sample.log_probability)
      view += fmt::format(", score {:.3f}", plain_nan(sample.score));
    view += "\n" + printable(sample.text);
    view += ids_line(sample.ids, sample.text);
  }
  return view;
}

}  // namespace tessera
