// SPDX-License-Identifier: Apache-2.0
// A file of requests (score_requests.h) as rows, for evaluation: a request a row, of which the
// continuation is scored.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/indexed_input.h"
#include "inputs/score_requests.h"

namespace tessera {

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
