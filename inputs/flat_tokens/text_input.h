// SPDX-License-Identifier: Apache-2.0
// Files of documents, plain or compressed, as training data without a separate
// preparation step. The first start builds a flat-tokens file, corpus.h5, in the run's directory;
// later starts read that snapshot.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/readers/document_map.h"
#include "inputs/wrapped_input.h"

namespace tessera {

// The snapshot as FlatTokensInput::HParams::path, so that eval inputs read the training input's
// validation split.
inline constexpr std::string_view kCorpusSnapshot = "$RUN/corpus.h5";

class TextInput final : public WrappedInput {
 public:
  struct HParams {
    using Instance = TextInput;
    std::string path = "";  // File, folder or pattern; "": Tessera's own sources.
    std::string tokenizer =
        "bytes";  // Or a path (make_tokenizer.h). Its end_id is appended to each document.
    std::string text_field = "text";  // ReadOptions::text_field.
    std::string separator = "";  // Separates documents in text files; "": one document per file.
    Template<BaseDocumentMap> document_map_tpl;  // Applied to each document; unset: none.
    // Fraction of the data for the split `validation`: the tail of a single text, whole files of
    // several texts, single documents of other inputs (in_validation_split).
    double validation_fraction = 0.1;
    std::string split = "train";
    std::string name = "";  // Dataset name in eval metrics; "": the split's name.
    Required<int64_t> global_batch_size;
    Required<int64_t> seq_len;
    Labels labels = Labels::kNextToken;
    bool shuffle = true;
    bool repeat = true;
    int64_t num_batches = -1;
    Field<int64_t> seed;
    FIELDS(path, tokenizer, text_field, separator, document_map_tpl,
           About(validation_fraction, kRate), split, name, About(global_batch_size, kSize),
           About(seq_len, kSize), labels, shuffle, repeat,
           About(num_batches, "batches until the end; -1: no limit", {.min = 1, .also = -1}), seed)
  };
  explicit TextInput(const HParams& p);
  void attach(const Infeed& infeed) override;
  bool documents_begin_with_start_id() const override { return p_.labels == Labels::kShiftRight; }
  std::vector<std::string> remarks() const override { return remarks_; }

 private:
  HParams p_;
  std::vector<std::string> remarks_;
};

extern template class HolderOf<BaseInput, TextInput::HParams>;

}  // namespace tessera
