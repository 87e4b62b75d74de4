// SPDX-License-Identifier: Apache-2.0
#include "tasks/sample_text.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/random.h"

namespace tessera {

int32_t draw_token(const std::vector<float>& logits, double temperature, double uniform) {
  CHECK(logits.size() > 1);
  const auto largest = std::max_element(logits.begin() + 1, logits.end());
  if (temperature <= 0.0) return static_cast<int32_t>(largest - logits.begin());
  std::vector<double> cumulative(logits.size(), 0.0);
  for (size_t i = 1; i < logits.size(); ++i)
    cumulative[i] = cumulative[i - 1] + std::exp((logits[i] - *largest) / temperature);
  const auto drawn =
      std::upper_bound(cumulative.begin(), cumulative.end(), uniform * cumulative.back());
  return static_cast<int32_t>(
      std::min<int64_t>(drawn - cumulative.begin(), static_cast<int64_t>(logits.size()) - 1));
}

std::string sample_text(LogitsProgram& program, const BaseInput& input, const ClosingSample& p) {
  std::vector<int32_t> ids = input.text_to_ids(p.prompt.empty() ? "\n" : p.prompt);
  if (ids.empty()) ids.push_back(0);
  const uint64_t key = random_key(static_cast<uint64_t>(p.seed), "closing_sample");
  for (int64_t i = 0; i < p.length; ++i) {
    const double uniform = uniform_from_bits(philox(key, static_cast<uint64_t>(i), 0)[0]);
    ids.push_back(draw_token(program.next_token(ids), p.temperature, uniform));
  }
  return input.ids_to_text(ids);
}

}  // namespace tessera
