// SPDX-License-Identifier: Apache-2.0
#include "tasks/decode/decoding.h"

#include "core/base/error.h"

namespace tessera {

Decoding::Decoding(ModelSession& session, const DecodeHParams& p, int64_t prompts,
                   int64_t longest_prompt, const std::string& cache, bool keep_cast_weights)
    : p_(p),
      program_(session,
               {.rows = decode_rows(session, p, prompts),
                .cache_length = cache_needed(p, longest_prompt),
                .prefill_chunk = p.prefill_chunk,
                .cache = cache,
                .keep_cast_weights = keep_cast_weights},
               p.strategy) {}

void Decoding::begin(const PromptText* text) {
  if (text != nullptr) decoder_.emplace(program_, p_, *text);
}

std::vector<std::vector<DecodedSample>> Decoding::decode(
    const std::vector<std::vector<int32_t>>& prompts, const Decoder::OnDone& on_done) {
  std::vector<std::vector<DecodedSample>> samples;
  program_.lead_or_follow([&] {
    CHECK(decoder_.has_value(), "decoding begins before it runs");
    samples = decoder_->decode(prompts, on_done);
  });
  return samples;
}

}  // namespace tessera
