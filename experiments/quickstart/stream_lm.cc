// SPDX-License-Identifier: Apache-2.0
// quickstart.StreamLm: learns shards of text or JSON lines directly, tokenised on the fly; the
// validation split is chosen by a hash of each document's text. --set path=FILES, and --set
// tokenizer=FILE with its vocab_size.
#include "experiments/quickstart/byte_lm.h"
#include "inputs/streaming/streaming_text_input.h"
#include "plugins/registry.h"

namespace tessera {

struct StreamLm : ByteLm {
  using Base = ByteLm;
  static constexpr std::string_view kSummary =
      "learns shards of text or JSON lines without preparation: --set path='data/*.jsonl.gz'";
  std::string path = "data/*.jsonl*";  // A file, a folder or a pattern.
  std::string text_field = "text";
  std::string tokenizer = "bytes";
  double validation_fraction = 0.01;  // Of documents.
  CorruptRecords broken_documents = CorruptRecords::kFail;
  int64_t max_eval_batches =
      100;  // Without a limit, the whole corpus is read to find the validation split.
  FIELDS(path, text_field, tokenizer, validation_fraction, broken_documents, max_eval_batches)

  ExperimentConfig build() const override;
};

ExperimentConfig StreamLm::build() const {
  StreamingTextInput::HParams shards{.path = path,
                                     .tokenizer = tokenizer,
                                     .validation_fraction = validation_fraction,
                                     .global_batch_size = global_batch_size,
                                     .seq_len = seq_len,
                                     .text_field = text_field,
                                     .broken_documents = broken_documents};
  ExperimentConfig config = ByteLm::build();
  config.input = shards;
  shards.split = StreamSplit::kValidation;
  shards.shuffle = false;
  shards.repeat = false;
  shards.num_batches = max_eval_batches;
  config.eval_inputs = {{"validation", shards}};
  return config;
}

REGISTER_EXPERIMENT(quickstart, StreamLm)

}  // namespace tessera
