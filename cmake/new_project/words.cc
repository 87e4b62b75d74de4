// SPDX-License-Identifier: Apache-2.0
#include "words.h"

#include <algorithm>

#include "inputs/shuffle.h"

namespace my_project {

using namespace tessera;

const TemplateRegistrar<BaseInput, Words> kRegister;

Words::Words(const HParams& p)
    : IndexedInput({.name = "words",
                    .global_batch_size = p.global_batch_size.get(),
                    .seq_len = 2 * kLongestWord + 1,
                    .seed = static_cast<uint64_t>(p.seed),
                    .num_batches = p.num_batches}) {}

void Words::fill_example(int64_t, int64_t index, const TokenRow& row) const {
  uint64_t draw = mix_bits(static_cast<uint64_t>(index), stream().seed);
  std::string letters(1 + draw % kLongestWord, 'a');
  for (char& letter : letters) letter += static_cast<char>((draw /= 26) % 26);
  std::string sorted = letters;
  std::sort(sorted.begin(), sorted.end());

  std::vector<uint32_t> encoded;  // Twice the id; plus 1 where a document starts.
  for (const int32_t id : bytes_->encode(letters + "=" + sorted + "\n"))
    encoded.push_back(static_cast<uint32_t>(2 * id) + (encoded.empty() ? 1 : 0));
  fill_row(layout_, encoded, row);
  std::fill_n(row.weights.begin(), letters.size(), 0.0f);
  *row.label_bytes = static_cast<float>(sorted.size() + 1);
}

}  // namespace my_project
