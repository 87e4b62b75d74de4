// SPDX-License-Identifier: Apache-2.0
#include "tests/tasks/run/decode/decode_trial.h"

#include <cmath>

#include "core/base/random.h"

namespace tessera {

std::vector<std::vector<DecodedSample>> decode_with(PrefixProgram& program, const DecodeHParams& p,
                                                    const Prompts& prompts) {
  const PromptText text(nullptr, program.vocab_size());
  check(p);
  return Decoder(program, p, text).decode(prompts);
}

std::vector<std::vector<DecodedSample>> decode_with(const PrefixProgram::Sizes& sizes,
                                                    const DecodeHParams& p,
                                                    const Prompts& prompts) {
  PrefixProgram program(sizes);
  return decode_with(program, p, prompts);
}

Prompts some_prompts(int64_t count, int64_t vocab_size) {
  Prompts prompts;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int32_t> prompt;
    for (int64_t j = 0; j <= i * 5 % 11; ++j)
      prompt.push_back(
          static_cast<int32_t>(philox(9, static_cast<uint64_t>(i), static_cast<uint64_t>(j))[0] %
                               static_cast<uint32_t>(vocab_size)));
    prompts.push_back(prompt);
  }
  return prompts;
}

std::vector<double> log_probabilities(const std::vector<float>& logits) {
  double total = 0.0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  std::vector<double> result;
  for (const float logit : logits) result.push_back(static_cast<double>(logit) - std::log(total));
  return result;
}

}  // namespace tessera
