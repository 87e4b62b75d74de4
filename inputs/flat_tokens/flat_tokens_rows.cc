// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/flat_tokens_rows.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/base/error.h"
#include "inputs/shuffle.h"

namespace tessera {
namespace {

// Indices by decreasing length (stable counting sort).
std::vector<uint32_t> by_length(std::span<const int32_t> lengths, int32_t capacity) {
  std::vector<int64_t> next(static_cast<size_t>(capacity) + 2, 0);
  for (const int32_t length : lengths) {
    CHECK(length >= 1 && length <= capacity, "a length of {} for {}", length, capacity);
    ++next[static_cast<size_t>(capacity - length) + 1];
  }
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  std::vector<uint32_t> order(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i)
    order[static_cast<size_t>(next[static_cast<size_t>(capacity - lengths[i])]++)] =
        static_cast<uint32_t>(i);
  return order;
}

}  // namespace

BestFitPacking::BestFitPacking(std::span<const int32_t> lengths, int32_t capacity) {
  if (lengths.size() > std::numeric_limits<uint32_t>::max())
    fail("{} pieces of documents are more than best-fit packing takes (2^32)", lengths.size());
  std::vector<uint32_t> row_of(lengths.size());
  std::map<int32_t, std::vector<uint32_t>> open;  // Open rows by free room.
  uint32_t rows = 0;
  for (const uint32_t piece : by_length(lengths, capacity)) {
    const int32_t length = lengths[piece];
    const auto best = open.lower_bound(length);
    int32_t room = capacity;
    if (best == open.end()) {
      row_of[piece] = rows++;
    } else {
      room = best->first;
      row_of[piece] = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) open.erase(best);
    }
    if (room > length) open[room - length].push_back(row_of[piece]);
  }

  starts_.assign(static_cast<size_t>(rows) + 1, 0);
  for (const uint32_t row : row_of) ++starts_[row + 1];
  for (size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
  std::vector<int64_t> next(starts_.begin(), starts_.end() - 1);
  pieces_.resize(lengths.size());
  for (size_t i = 0; i < row_of.size(); ++i)
    pieces_[static_cast<size_t>(next[row_of[i]]++)] = static_cast<uint32_t>(i);
}

std::span<const uint32_t> BestFitPacking::row(int64_t number) const {
  CHECK(number >= 0 && number < num_rows(), "row {} of {}", number, num_rows());
  const auto begin = static_cast<size_t>(starts_[static_cast<size_t>(number)]);
  const auto end = static_cast<size_t>(starts_[static_cast<size_t>(number) + 1]);
  return std::span(pieces_).subspan(begin, end - begin);
}

namespace {

constexpr uint64_t kPhaseKey = 0x7068617365u;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

FlatTokensRows::FlatTokensRows(const std::filesystem::path& path, const std::string& split,
                               const RowOptions& options)
    : path_(path), options_(options), reader_(path, split) {
  if (options.packed) {
    count_packed_rows();
  } else {
    find_document_windows();
    size_ = static_cast<int64_t>(document_windows_.size());
    if (options.best_fit) share_rows();
  }
}

void FlatTokensRows::count_packed_rows() {
  const int64_t positions = std::max<int64_t>(0, reader_.num_tokens() - tokens_ahead());
  size_ = divide_up(positions, options_.seq_len);
  if (const int64_t whole = positions / options_.seq_len; options_.shifts && whole >= 2) {
    size_ = whole - 1;
    max_phase_ = positions - size_ * options_.seq_len;
  }
}

// A document longer than a row takes several rows, so that every token is a label once.
void FlatTokensRows::find_document_windows() {
  std::vector<uint64_t> starts(static_cast<size_t>(reader_.num_documents()) + 1);
  reader_.read_starts(0, starts);
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const auto end = static_cast<int64_t>(starts[i + 1]);
    for (auto begin = static_cast<int64_t>(starts[i]); begin + tokens_ahead() < end;
         begin += options_.seq_len)
      document_windows_.push_back(
          {begin, std::min(tokens_per_row(options_.labels, options_.seq_len), end - begin)});
  }
}

void FlatTokensRows::share_rows() {
  std::vector<int32_t> lengths;
  for (const Window& window : document_windows_)
    lengths.push_back(static_cast<int32_t>(window.size));
  shared_rows_.emplace(lengths,
                       static_cast<int32_t>(tokens_per_row(options_.labels, options_.seq_len)));
  size_ = shared_rows_->num_rows();
}

int64_t FlatTokensRows::phase(int64_t epoch) const {
  if (max_phase_ == 0) return 0;
  const uint64_t bits = mix_bits(static_cast<uint64_t>(epoch), mix_bits(options_.seed, kPhaseKey));
  return static_cast<int64_t>(bits % static_cast<uint64_t>(max_phase_ + 1));
}

FlatTokensRows::Window FlatTokensRows::packed_window(int64_t epoch, int64_t index) const {
  const int64_t begin = phase(epoch) + index * options_.seq_len;
  return {begin, std::min(tokens_per_row(options_.labels, options_.seq_len),
                          reader_.num_tokens() - begin)};
}

void FlatTokensRows::fill(int64_t epoch, int64_t index, const RowLayout& layout,
                          const TokenRow& row) const {
  thread_local std::vector<uint32_t> encoded;  // Reuses its memory.
  encoded.clear();
  const auto add = [&](const Window& window) {
    const size_t begin = encoded.size();
    encoded.resize(begin + static_cast<size_t>(window.size));
    reader_.read(window.begin, std::span(encoded).subspan(begin));
    // A piece of a document is a segment of its own.
    if (begin > 0) encoded[begin] = encode_token(token_id(encoded[begin]), true);
  };
  if (options_.packed) {
    add(packed_window(epoch, index));
  } else if (!shared_rows_) {
    add(document_windows_[static_cast<size_t>(index)]);
  } else {
    for (const uint32_t piece : shared_rows_->row(index)) add(document_windows_[piece]);
  }
  fill_row(layout, encoded, row);
}

}  // namespace tessera
