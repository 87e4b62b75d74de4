// SPDX-License-Identifier: Apache-2.0
// Requests to score continuations of contexts, one JSON object a line (docs/evaluation.md): the
// questions of benchmarks, which an adapter of lm-evaluation-harness writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/type.h"
#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/indexed_input.h"
#include "inputs/token_row.h"

namespace tessera {

struct ScoreRequest {
  std::vector<int32_t> context;       // At least one id: what the model sees.
  std::vector<int32_t> continuation;  // At least one id: what is scored.
  // What a benchmark asks: its name, the number of the question, whether this answer is right,
  std::string task;
  int64_t example = -1;
  bool is_target = false;
  int64_t characters = 0;  // and those of its text, by which accuracy_norm divides; 0: unknown.

  // The tokens that the model reads: all but the last, which is only predicted.
  int64_t length() const { return std::ssize(context) + std::ssize(continuation) - 1; }
};

// Error for a request that is too long for a model that reads `max_length` tokens.
void check_length(const ScoreRequest& request, int64_t max_length);

// Encodes the text of a request, and sets both lists of ids.
using EncodeRequest = std::function<void(const std::string& context,
                                         const std::string& continuation, ScoreRequest* request)>;

// Reads a file. Error with the line for one that is not a request, for ids that are negative or not
// below `vocab_size`, for an empty continuation, and for a request longer than `max_length`; also
// for text if `encode` is null, and for a file without requests.
std::vector<ScoreRequest> read_score_requests(const std::filesystem::path& path,
                                              const EncodeRequest& encode, int64_t vocab_size,
                                              int64_t max_length);

// The requests of a file of ids, read once as long as somebody holds them: an eval dataset and its
// metrics share them. Errors are those above, without bounds of ids and lengths.
std::shared_ptr<const std::vector<ScoreRequest>> shared_score_requests(
    const std::filesystem::path& path);

// Lays out a request: its tokens, and weight 1 for the labels of its continuation.
void fill_row(const ScoreRequest& request, const TokenRow& row);

// A file of requests as rows, for evaluation: a request a row, of which the continuation is scored.
class RequestsInput final : public IndexedInput {
 public:
  struct HParams {
    using Instance = RequestsInput;
    std::string path;
    std::string name = "requests";
    Required<int64_t> global_batch_size;
    Required<int64_t> seq_len;
    FIELDS(path, name, About(global_batch_size, kSize), About(seq_len, kSize))
  };
  explicit RequestsInput(const HParams& p);

  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int64_t> num_examples() const override { return std::ssize(*requests_); }

 private:
  void open(const Infeed& infeed) override;
  void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const override;
  std::vector<DataPart> data_parts() const override;
  std::string content_of(size_t part, ContentSample& sample) const override;

  HParams p_;
  std::shared_ptr<const std::vector<ScoreRequest>> requests_;
  int64_t vocab_size_ = 0;  // The highest id plus 1.
  std::string fingerprint_;
};
extern template class HolderOf<BaseInput, RequestsInput::HParams>;

}  // namespace tessera
