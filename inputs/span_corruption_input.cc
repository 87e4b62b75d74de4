// SPDX-License-Identifier: Apache-2.0
#include "inputs/span_corruption_input.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"

namespace tessera {

REGISTER_TEMPLATE(BaseInput, SpanCorruptionInput);

namespace {

constexpr uint64_t kPurpose = 0x7370616e73u;  // Separates these draws from those of the order.
constexpr const char* kEncoderArrays[] = {"encoder_ids", "encoder_segment_ids",
                                          "encoder_segment_pos"};

// How many tokens of a text are replaced, in how many spans.
struct Spans {
  int64_t tokens = 0, count = 0;
};

// A text keeps a token before each span, and has at least one span.
Spans spans_of(const SpanCorruptionInput::HParams& p, int64_t length) {
  const auto noise = std::llround(static_cast<double>(length) * p.noise_density);
  Spans spans{.tokens = std::clamp<int64_t>(noise, 1, length - 1)};
  const auto count = std::llround(static_cast<double>(spans.tokens) / p.mean_span_length);
  spans.count = std::clamp<int64_t>(count, 1, std::min(spans.tokens, length - spans.tokens));
  return spans;
}

// Lengths of both sequences, with the end tokens.
int64_t encoder_length(int64_t length, const Spans& spans) {
  return length - spans.tokens + spans.count + 1;
}
int64_t decoder_length(const Spans& spans) { return spans.tokens + spans.count + 1; }

// Lengths of `count` parts of `size` items, none empty; all choices of their ends are equally
// probable. Selection sampling (Knuth, volume 2, algorithm S).
std::vector<int64_t> random_parts(int64_t size, int64_t count, RandomDraws& draws) {
  std::vector<int64_t> lengths;
  int64_t length = 0;
  for (int64_t i = 1; i <= size; ++i) {
    ++length;
    const int64_t ends = count - std::ssize(lengths) - 1;  // Still to be placed after an item
    const int64_t places = size - i;                       // of these.
    const bool is_end = i == size || draws.below(places) < ends;
    if (!is_end) continue;
    lengths.push_back(length);
    length = 0;
  }
  return lengths;
}

}  // namespace

SpanCorruptionInput::SpanCorruptionInput(const HParams& p)
    : RowRewriter(p.input_tpl, "SpanCorruptionInput"), p_(p) {
  const Spans spans = spans_of(p, p.seq_len.get());
  if (p.first_sentinel_id.get() + 1 < spans.count)
    fail(
        "SpanCorruptionInput: a row of seq_len={} tokens has {} spans, but first_sentinel_id={} "
        "leaves ids for {} sentinels",
        p.seq_len.get(), spans.count, p.first_sentinel_id.get(), p.first_sentinel_id.get() + 1);
}

int64_t SpanCorruptionInput::vocab_size() const {
  return std::max({input_->vocab_size(), p_.first_sentinel_id.get() + 1, p_.end_id + 1});
}

Batch SpanCorruptionInput::specification() const {
  Batch from = WrappedInput::specification();
  const int64_t rows = from.at("ids").shape.at(0);
  const Spans spans = spans_of(p_, p_.seq_len.get());
  Batch batch = token_batch_specification(rows, decoder_length(spans));
  const int64_t length = encoder_length(p_.seq_len.get(), spans);
  for (const char* const name : kEncoderArrays)
    batch[name] = {DType::kI32, {"batch", "encoder_seq"}, {rows, length}, {}};
  return batch;
}

void SpanCorruptionInput::corrupt(int64_t number, const TokenRow& from, int64_t row,
                                  Batch& batch) const {
  const TokenRow to = token_row(batch, row);
  *to.eval_sample_weight = *from.eval_sample_weight;
  *to.source = *from.source;
  const auto length = static_cast<int64_t>(
      std::ranges::count_if(from.segment_ids, [](int32_t segment) { return segment != 0; }));
  if (length < 2) return;  // No text: padding.
  const Spans spans = spans_of(p_, length);
  RandomDraws draws = draws_of(number, p_.seed, kPurpose);
  const std::vector<int64_t> replaced = random_parts(spans.tokens, spans.count, draws);
  const std::vector<int64_t> kept = random_parts(length - spans.tokens, spans.count, draws);
  std::vector<int32_t> encoder, decoder;
  auto at = from.labels.begin();
  const auto take = [&](int64_t count, std::vector<int32_t>& into) {
    into.insert(into.end(), at, at + count);
    at += count;
  };
  for (size_t i = 0; i < replaced.size(); ++i) {
    take(kept[i], encoder);
    const auto sentinel =
        static_cast<int32_t>(p_.first_sentinel_id.get() - static_cast<int64_t>(i));
    encoder.push_back(sentinel);
    decoder.push_back(sentinel);
    take(replaced[i], decoder);
  }
  for (std::vector<int32_t>* const each : {&encoder, &decoder})
    each->push_back(static_cast<int32_t>(p_.end_id));
  fill_document(decoder, to);
  to.ids[0] = static_cast<int32_t>(p_.start_id);
  *to.eval_sample_weight = *from.eval_sample_weight;
  *to.source = *from.source;
  const int64_t begin = row * batch.at(kEncoderArrays[0]).shape.at(1);
  const auto fill = [&](const char* name, auto value_at) {
    int32_t* const values = batch.at(name).data<int32_t>() + begin;
    for (size_t i = 0; i < encoder.size(); ++i) values[i] = value_at(i);
  };
  fill("encoder_ids", [&](size_t i) { return encoder[i]; });
  fill("encoder_segment_ids", [](size_t) { return 1; });
  fill("encoder_segment_pos", [](size_t i) { return static_cast<int32_t>(i); });
}

Batch SpanCorruptionInput::rewritten(Batch batch, std::span<const int64_t> numbers) {
  Batch specified = specification();
  const int64_t rows = batch.at("ids").shape.at(0);
  for (auto& [name, array] : specified) array.shape[0] = rows;
  Batch result = padding_batch(specified);
  for (size_t i = 0; i < numbers.size(); ++i)
    corrupt(numbers[i], token_row(batch, static_cast<int64_t>(i)), static_cast<int64_t>(i), result);
  input_->recycle(std::move(batch));
  return result;
}

}  // namespace tessera
