// SPDX-License-Identifier: Apache-2.0
#include "tests/tasks/run/eval/tiny_mixture.h"

#include <algorithm>
#include <cstring>

#include "core/hparams/template.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

const TemplateRegistrar<BaseInput, TinyMixture> kRegister;

SyntheticInput::HParams letters() {
  return {.task = SyntheticTask::kCopy,
          .global_batch_size = 1,
          .seq_len = TinyMixture::kSeqLen,
          .num_letters = 8,
          .distance = 2,
          .seed = 5};
}

}  // namespace

std::function<void()> TinyMixture::before_batch;

TinyMixture::TinyMixture(const HParams& p)
    : p_(p), letters_(letters()), rows_{{0, p.global_batch_size}} {
  letters_.attach({});
}

void TinyMixture::attach(const Infeed& infeed) {
  if (!infeed.rows.empty()) rows_ = infeed.rows;
}

Batch TinyMixture::specification() const {
  int64_t count = 0;
  for (const RowRange& range : rows_) count += range.size();
  Batch batch = letters_.specification();
  for (auto& [name, array] : batch) array.shape[0] = count;
  return batch;
}

Batch TinyMixture::row(int64_t number) const {
  SyntheticInput copy(letters());
  copy.attach({});
  copy.restore({number, {}});
  Batch batch = *copy.get_next();
  if (!p_.has_weights) std::fill_n(batch.at("weights").data<float>(), kSeqLen, 0.0f);
  *batch.at("label_bytes").data<float>() = bytes_of(number);
  *batch.at("source").data<int32_t>() = source_of(number);
  if (number >= p_.num_rows - p_.num_silent) *batch.at("eval_sample_weights").data<float>() = 0.0f;
  return batch;
}

std::optional<Batch> TinyMixture::peek() {
  if (before_batch) before_batch();
  const int64_t first = position_ * p_.global_batch_size;
  if (!p_.repeat && first >= p_.num_rows) return std::nullopt;
  Batch batch = padding_batch(specification());
  int64_t at = 0;
  for (const RowRange& range : rows_) {
    for (int64_t i = range.begin; i < range.end; ++i, ++at) {
      if (!p_.repeat && first + i >= p_.num_rows) continue;
      for (const auto& [name, array] : row((first + i) % p_.num_rows))
        std::memcpy(batch.at(name).bytes.data() + static_cast<size_t>(at) * array.bytes.size(),
                    array.bytes.data(), array.bytes.size());
    }
  }
  return batch;
}

std::optional<Batch> TinyMixture::get_next() {
  std::optional<Batch> batch = peek();
  if (batch) ++position_;
  return batch;
}

namespace {

TEST_CASE("the tiny mixture gives each row once, then padding with weight 0") {
  TinyMixture input({});
  std::vector<int32_t> sources;
  while (const std::optional<Batch> batch = input.get_next())
    for (int64_t i = 0; i < 4; ++i)
      if (batch->at("eval_sample_weights").data<float>()[i] > 0.0f)
        sources.push_back(batch->at("source").data<int32_t>()[i]);
  REQUIRE(sources == std::vector<int32_t>{0, 1, 1, 2, 2, 1, 1, 0, 1, 1, 2});
}

}  // namespace
}  // namespace tessera
