// SPDX-License-Identifier: Apache-2.0
// Inputs that are token ids already. An end id stays the last one of its document, as nanoGPT
// writes it; llm.c writes it before each, so one at the very beginning of a file ends nothing and
// goes.
#include <algorithm>

#include "core/base/error.h"
#include "inputs/building/input_reader.h"
#include "inputs/building/token_bin.h"
#include "inputs/held_out.h"

namespace tessera {
namespace {

constexpr size_t kBytesAtATime = 1 << 18;

class TokenReader : public InputReader {
 public:
  TokenReader(std::unique_ptr<ByteSource> source, const BuildInput& input,
              const InputReaderOptions& options)
      : tokens_(std::move(source), input.bytes, options.vocab_size),
        hold_out_(input.hold_out),
        fraction_(options.validation_fraction) {}
  LeftOut left_out() const final { return {}; }
  int64_t bytes_read() const final { return tokens_.bytes_read(); }

 protected:
  static void count(size_t ids, DocumentBatch* batch) {
    batch->bytes += static_cast<int64_t>(ids * sizeof(int32_t));
  }

  TokenBinReader tokens_;
  HoldOut hold_out_;
  double fraction_;
};

// Parted into documents by an id.
class PartedTokens final : public TokenReader {
 public:
  PartedTokens(std::unique_ptr<ByteSource> source, const BuildInput& input,
               const InputReaderOptions& options)
      : TokenReader(std::move(source), input, options),
        where_(input.path.string()),
        end_id_(*options.end_of_tokens),
        most_ids_(static_cast<size_t>(options.read.max_document_bytes) / sizeof(int32_t)) {}

  bool read(const SplitSet& wanted, DocumentBatch* batch) override {
    const size_t size = find_document();
    if (size == 0) return false;
    const auto begin = pending_.begin() + static_cast<std::ptrdiff_t>(used_);
    const std::string_view bytes(reinterpret_cast<const char*>(&*begin), size * sizeof(int32_t));
    const bool is_validation = hold_out_ == HoldOut::kWhole ||
                               (hold_out_ == HoldOut::kByDocument && is_held_out(bytes, fraction_));
    const Split split = is_validation ? kValidation : kTrain;
    if (wanted[split]) batch->tokens[split].add_document(std::span(&*begin, size));
    count(size, batch);
    used_ += size;
    position_ = {position_.document + 1, position_.offset + static_cast<int64_t>(size)};
    return true;
  }

  ShardPosition position() const override { return position_; }
  void seek(const ShardPosition& position) override {
    tokens_.seek(position.offset);
    position_ = position;
    pending_.clear();
    used_ = 0;
  }

 private:
  // The size of the document that begins at used_ of pending_, read if need be; 0 at the end.
  size_t find_document() {
    for (size_t searched = 0;;) {
      const auto begin = pending_.begin() + static_cast<std::ptrdiff_t>(used_);
      const auto found =
          std::find(begin + static_cast<std::ptrdiff_t>(searched), pending_.end(), end_id_);
      const auto size = static_cast<size_t>(found - begin);
      if (size > most_ids_)
        fail(
            "{}: the document from token {} on has more than {} tokens; is {} the id that ends its "
            "documents (--end_id), or has it none (--end_of_document=none)?",
            where_, position_.offset, most_ids_, end_id_);
      if (found != pending_.end() && position_.offset == 0 && size == 0) {
        ++used_;
        ++position_.offset;
        continue;
      }
      if (found != pending_.end()) return size + 1;
      searched = size;
      if (!read_block()) return size;
    }
  }

  bool read_block() {
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ = 0;
    const size_t had = pending_.size();
    pending_.resize(had + kBytesAtATime);
    const size_t got = tokens_.read(std::span(pending_).subspan(had));
    pending_.resize(had + got);
    return got > 0;
  }

  std::string where_;
  int32_t end_id_;
  size_t most_ids_;
  ShardPosition position_;
  std::vector<int32_t> pending_;  // Read, but not given out from used_ on.
  size_t used_ = 0;
};

// One long run without documents, given out block by block.
class RunOfTokens final : public TokenReader {
 public:
  RunOfTokens(std::unique_ptr<ByteSource> source, const BuildInput& input,
              const InputReaderOptions& options)
      : TokenReader(std::move(source), input, options) {
    const int64_t size = tokens_.num_tokens();
    tail_ = size;
    if (hold_out_ == HoldOut::kWhole) tail_ = 0;
    if (hold_out_ == HoldOut::kTail)
      tail_ = static_cast<int64_t>(static_cast<double>(size) * (1.0 - fraction_));
  }

  bool read(const SplitSet& wanted, DocumentBatch* batch) override {
    const int64_t begin = tokens_.position();
    const Split split = begin < tail_ ? kTrain : kValidation;
    const int64_t end = split == kTrain ? tail_ : tokens_.num_tokens();
    if (begin == end) return false;
    std::vector<int32_t> ids(static_cast<size_t>(std::min<int64_t>(kBytesAtATime, end - begin)));
    tokens_.read(ids);
    count(ids.size(), batch);
    if (!wanted[split]) return true;
    DocumentIds& to = batch->tokens[split];
    if (begin != 0 && begin != tail_) {
      to.extend_document(ids);
    } else {
      to.add_document(ids);
    }
    return true;
  }

  ShardPosition position() const override { return {0, tokens_.position()}; }
  void seek(const ShardPosition& position) override { tokens_.seek(position.offset); }

 private:
  int64_t tail_ = 0;  // The first token of what is held out.
};

}  // namespace

std::unique_ptr<InputReader> read_token_bin(std::unique_ptr<ByteSource> source,
                                            const BuildInput& input,
                                            const InputReaderOptions& options) {
  if (options.end_of_tokens)
    return std::make_unique<PartedTokens>(std::move(source), input, options);
  return std::make_unique<RunOfTokens>(std::move(source), input, options);
}

}  // namespace tessera
