// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "inputs/flat_tokens/build_inputs.h"
#include "inputs/readers/byte_source.h"
#include "inputs/validation_split.h"

namespace tessera {
namespace {

constexpr int64_t kHeaderBytes = 256 * 4;

// The headers of llm.c.
struct Kind {
  int32_t magic;
  int32_t version;
  int64_t token_bytes;
};
constexpr Kind kKinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

template <typename T>
T load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Sequential reader of the token files of nanoGPT (u16, no header) and llm.c (a header of 256 i32,
// then u16 or u32). Checks ids against the vocabulary.
class TokenBinReader {
 public:
  // `file_bytes`: the size of the source, checked against the header.
  TokenBinReader(std::unique_ptr<ByteSource> source, int64_t file_bytes, int64_t vocab_size)
      : source_(std::move(source)), vocab_size_(vocab_size) {
    read_header(file_bytes);
    seek(0);
  }

  int64_t num_tokens() const { return num_tokens_; }
  int64_t position() const { return position_; }  // Index of the next token.
  int64_t bytes_read() const { return source_->bytes_read(); }

  void seek(int64_t token) {
    if (token > num_tokens_)
      fail("{}: has {} tokens, cannot resume at token {}; the file has been truncated",
           source_->where(), num_tokens_, token);
    source_->seek(header_bytes_ + token * token_bytes_);
    position_ = token;
  }

  // The next ids; fewer only at the end. Error for an id outside the vocabulary.
  size_t read(std::span<int32_t> ids) {
    const auto count =
        static_cast<size_t>(std::min(static_cast<int64_t>(ids.size()), num_tokens_ - position_));
    buffer_.resize(count * static_cast<size_t>(token_bytes_));
    read_whole(buffer_.data(), buffer_.size());
    for (size_t i = 0; i < count; ++i) {
      const char* const at = buffer_.data() + i * static_cast<size_t>(token_bytes_);
      const int64_t id = token_bytes_ == 2 ? load<uint16_t>(at) : load<uint32_t>(at);
      if (id >= vocab_size_)
        fail(
            "{}: token {} has id {}, but the vocabulary has {} ids; name the tokenizer that made "
            "the file",
            source_->where(), position_ + static_cast<int64_t>(i), id, vocab_size_);
      ids[i] = static_cast<int32_t>(id);
    }
    position_ += static_cast<int64_t>(count);
    return count;
  }

 private:
  void read_header(int64_t file_bytes) {
    const std::string& where = source_->where();
    int32_t header[3] = {};
    if (file_bytes >= kHeaderBytes) {
      char bytes[sizeof(header)];
      read_whole(bytes, sizeof(bytes));
      std::memcpy(header, bytes, sizeof(header));
    }
    for (const Kind& kind : kKinds) {
      if (header[0] != kind.magic) continue;
      if (header[1] != kind.version)
        fail("{}: llm.c's token file of version {}; expected version {}", where, header[1],
             kind.version);
      header_bytes_ = kHeaderBytes;
      token_bytes_ = kind.token_bytes;
      num_tokens_ = header[2];
      if (num_tokens_ < 0 || header_bytes_ + num_tokens_ * token_bytes_ != file_bytes)
        fail("{}: its header says {} tokens of {} bytes, but the file has {} bytes", where,
             header[2], token_bytes_, file_bytes);
      return;
    }
    if (file_bytes % token_bytes_ != 0)
      fail("{}: has {} bytes, which is not a multiple of 2-byte tokens (nanoGPT's .bin)", where,
           file_bytes);
    num_tokens_ = file_bytes / token_bytes_;
  }

  // Reads exactly `size` bytes.
  void read_whole(char* into, size_t size) {
    for (size_t have = 0; have < size;) {
      const size_t got = source_->read(into + have, size - have);
      if (got == 0)
        fail("{}: truncated at token {} of {}", source_->where(), position_, num_tokens_);
      have += got;
    }
  }

  std::unique_ptr<ByteSource> source_;
  int64_t vocab_size_;
  int64_t header_bytes_ = 0;
  int64_t token_bytes_ = 2;
  int64_t num_tokens_ = 0;
  int64_t position_ = 0;
  std::vector<char> buffer_;
};

// Token inputs. An end id is the last id of its document, as nanoGPT writes it. llm.c writes it
// before each document, so one at the very beginning of a file is dropped.

constexpr size_t kBytesAtATime = 1 << 18;

class TokenReader : public InputReader {
 public:
  TokenReader(std::unique_ptr<ByteSource> source, const BuildInput& input, const TokenBuild& build)
      : tokens_(std::move(source), input.bytes, build.identity.vocab_size),
        validation_part_(input.validation_part),
        fraction_(build.validation_fraction) {}
  SkippedRecords skipped() const final { return {}; }
  int64_t bytes_read() const final { return tokens_.bytes_read(); }

 protected:
  static void count(size_t ids, DocumentBatch* batch) {
    batch->bytes += static_cast<int64_t>(ids * sizeof(int32_t));
  }

  TokenBinReader tokens_;
  ValidationPart validation_part_;
  double fraction_;
};

// Documents end with an id.
class DelimitedTokens final : public TokenReader {
 public:
  DelimitedTokens(std::unique_ptr<ByteSource> source, const BuildInput& input,
                  const TokenBuild& build)
      : TokenReader(std::move(source), input, build),
        where_(input.path.string()),
        end_id_(*build.end_of_tokens),
        most_ids_(static_cast<size_t>(build.read.max_document_bytes) / sizeof(int32_t)) {}

  bool read(const SplitSet& wanted, DocumentBatch* batch) override {
    const size_t size = find_document();
    if (size == 0) return false;
    const auto document = std::span(pending_).subspan(used_, size);
    const std::string_view bytes(reinterpret_cast<const char*>(document.data()),
                                 document.size_bytes());
    const bool is_validation =
        validation_part_ == ValidationPart::kWhole ||
        (validation_part_ == ValidationPart::kByDocument && in_validation_split(bytes, fraction_));
    const Split split = is_validation ? kValidation : kTrain;
    if (wanted[split]) batch->tokens[split].add_document(document);
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
  // The size of the document at used_ of pending_, read if needed; 0 at the end.
  size_t find_document() {
    for (size_t searched = 0;;) {
      const auto begin = pending_.begin() + static_cast<std::ptrdiff_t>(used_);
      const auto found =
          std::find(begin + static_cast<std::ptrdiff_t>(searched), pending_.end(), end_id_);
      const auto size = static_cast<size_t>(found - begin);
      if (size > most_ids_)
        fail(
            "{}: the document that begins at token {} has more than {} tokens; check that id {} "
            "ends documents (--end_id); if no id does, use --end_of_document=none",
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
  std::vector<int32_t> pending_;  // Ids read; those before used_ are consumed.
  size_t used_ = 0;
};

// One sequence without document ends, read in blocks.
class UndelimitedTokens final : public TokenReader {
 public:
  UndelimitedTokens(std::unique_ptr<ByteSource> source, const BuildInput& input,
                    const TokenBuild& build)
      : TokenReader(std::move(source), input, build) {
    const int64_t size = tokens_.num_tokens();
    tail_ = size;
    if (validation_part_ == ValidationPart::kWhole) tail_ = 0;
    if (validation_part_ == ValidationPart::kTail)
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
  int64_t tail_ = 0;  // The first token of the validation split.
};

}  // namespace

std::unique_ptr<InputReader> read_token_bin(std::unique_ptr<ByteSource> source,
                                            const BuildInput& input, const TokenBuild& build) {
  if (build.end_of_tokens)
    return std::make_unique<DelimitedTokens>(std::move(source), input, build);
  return std::make_unique<UndelimitedTokens>(std::move(source), input, build);
}

}  // namespace tessera
