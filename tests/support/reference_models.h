// SPDX-License-Identifier: Apache-2.0
// Known models built from Tessera's layers: small versions equal to tests/golden/models.py, and
// published sizes whose weights tests count.
#pragma once

#include "layers/models/language_model.h"

namespace tessera {

// Sizes of all small models, the same as in tests/golden/models.py.
struct SmallSizes {
  static constexpr int64_t kVocab = 37, kEmbed = 16, kHeads = 4, kLayers = 2, kSeq = 12, kBatch = 2;
};

LanguageModel::HParams small_gpt2();
LanguageModel::HParams small_llama();
LanguageModel::HParams small_pax();
LanguageModel::HParams small_mtp();  // Narrower, with one layer and two further tokens.

LanguageModel::HParams gpt2_124m();
LanguageModel::HParams llama2_7b();
LanguageModel::HParams c4_spmd_1b();  // Pax's C4Spmd1BAdam4Replicas.
LanguageModel::HParams seqax_84m();   // seqax's flat_tokens_84m.

}  // namespace tessera
