// SPDX-License-Identifier: Apache-2.0
#include "tasks/decode/sample_view.h"

#include <fmt/format.h>

#include "core/base/plain_nan.h"
#include "tasks/printable.h"

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

std::string sample_view(const DecodedExample& example) {
  std::string view =
      fmt::format("--- prompt {}\n{}", example.number + 1, printable(example.prompt));
  for (size_t i = 0; i < example.samples.size(); ++i) {
    const DecodedSample& sample = example.samples[i];
    view += fmt::format("\n--- continuation{}: {} token{}, {}, log-probability {:.2f}",
                        example.samples.size() > 1 ? fmt::format(" {}", i + 1) : "",
                        sample.ids.size(), sample.ids.size() == 1 ? "" : "s", why(sample.finish),
                        plain_nan(sample.log_probability));
    if (sample.score != sample.log_probability)
      view += fmt::format(", score {:.3f}", plain_nan(sample.score));
    view += "\n" + printable(sample.text);
  }
  return view;
}

}  // namespace tessera
