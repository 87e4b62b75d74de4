// SPDX-License-Identifier: Apache-2.0
// Reads the token files of nanoGPT, llm.c and Megatron-LM as documents (read_token_bin of
// build_inputs.h): finds the width of the ids, checks them against the vocabulary, and splits
// documents at an end id or by an index.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/io/storage/storage.h"
#include "inputs/flat_tokens/build_inputs.h"
#include "inputs/flat_tokens/megatron_index.h"
#include "inputs/readers/byte_source.h"
#include "inputs/readers/foreign_format.h"
#include "inputs/shuffle.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {
namespace {

constexpr int64_t kHeaderBytes = 256 * 4;

// A header of llm.c.
struct Kind {
  int32_t magic;
  int32_t version;
  int64_t token_bytes;
};
constexpr Kind kKinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

// Returns whether all elements of `head` at even or at odd places are 0, but not the others.
template <typename T>
bool is_zero_at(std::string_view head, size_t parity) {
  constexpr size_t kFewest = 8;
  bool zero = true, others = true;
  for (size_t i = 0; i < head.size() / sizeof(T); ++i) {
    const bool is_zero = from_bytes<T>(head.data() + i * sizeof(T)) == 0;
    (i % 2 == parity ? zero : others) &= is_zero;
  }
  return head.size() / sizeof(T) >= kFewest && zero && !others;
}

// Detects other data: ids of texts are mostly small, so their high bytes are smaller on average.
bool has_large_high_bytes(std::string_view head) {
  constexpr size_t kFewest = 1024;
  int64_t low = 0, high = 0;
  for (size_t i = 0; i + 1 < head.size(); i += 2) {
    low += static_cast<unsigned char>(head[i]);
    high += static_cast<unsigned char>(head[i + 1]);
  }
  return head.size() >= kFewest && 2 * low < high;
}

bool is_utf8_text(std::string_view head) {
  constexpr size_t kFewest = 32, kLongestCharacter = 4;
  return head.size() >= kFewest && head.find('\0') == std::string_view::npos &&
         valid_prefix(head) + kLongestCharacter > head.size();
}

// Returns what a file without a header seems to hold instead of ids of this size; "": nothing else.
std::string unlike_tokens(std::string_view head, int64_t token_bytes) {
  if (const auto foreign = foreign_format(head)) return fmt::format("is {}", foreign->name);
  if (is_utf8_text(head)) return "is text (--format=text)";
  if (is_zero_at<uint32_t>(head, 1))
    return "has ids of 8 bytes; numpy's astype('u4') converts them";
  if (token_bytes == 4) return "";
  if (is_zero_at<uint16_t>(head, 1)) return "has ids of 4 bytes (--token_dtype=u32)";
  if (is_zero_at<uint16_t>(head, 0)) return "has big-endian ids of 4 bytes";
  if (has_large_high_bytes(head)) return "has big-endian ids; numpy's byteswap() converts it";
  return "";
}

// Reads a token file of nanoGPT (u16, no header), llm.c (a header of 256 i32, then u16 or u32) or
// Megatron (an index beside it), and checks ids against the vocabulary. An end id is the last id of
// its document, as nanoGPT writes it. llm.c writes it before each document, so one at the very
// beginning of a file is dropped.
constexpr size_t kBytesAtATime = 1 << 18;

class TokenReader : public InputReader {
 public:
  TokenReader(std::unique_ptr<ByteSource> source, const BuildInput& input, const TokenBuild& build)
      : input_(input), build_(build), source_(std::move(source)) {
    const std::string head = head_of(*source_);
    if (!read_header(head)) choose_width(head);
    seek_token(0);
  }

  SkippedRecords skipped() const final { return {}; }
  int64_t bytes_read() const final { return source_->bytes_read(); }

 protected:
  int64_t num_tokens() const { return num_tokens_; }
  int64_t next_token() const { return next_token_; }  // Index of the next token.

  void seek_token(int64_t token) {
    if (token > num_tokens_)
      fail("{}: has {} tokens, cannot resume at token {}; the file has been truncated",
           source_->where(), num_tokens_, token);
    source_->seek(header_bytes_ + token * token_bytes_);
    next_token_ = token;
  }

  // Reads the next ids; fewer only at the end. Error for an id outside the vocabulary.
  size_t read_ids(std::span<int32_t> ids) {
    const auto count =
        static_cast<size_t>(std::min(static_cast<int64_t>(ids.size()), num_tokens_ - next_token_));
    buffer_.resize(count * static_cast<size_t>(token_bytes_));
    if (read_fully(*source_, buffer_.data(), buffer_.size()) < buffer_.size())
      fail("{}: truncated at token {} of {}", source_->where(), next_token_, num_tokens_);
    for (size_t i = 0; i < count; ++i) {
      const char* const at = buffer_.data() + i * static_cast<size_t>(token_bytes_);
      const int64_t id = token_bytes_ == 2 ? from_bytes<uint16_t>(at) : from_bytes<uint32_t>(at);
      if (id >= vocab_size())
        fail(
            "{}: token {} has id {}, but the vocabulary has {} ids; name the tokenizer that made "
            "the file, and the width of ids if it is another (--token_dtype)",
            source_->where(), next_token_ + static_cast<int64_t>(i), id, vocab_size());
      ids[i] = static_cast<int32_t>(id);
    }
    next_token_ += static_cast<int64_t>(count);
    return count;
  }

  static void count(size_t ids, DocumentBatch* batch) {
    batch->bytes += static_cast<int64_t>(ids * sizeof(int32_t));
  }

  // Adds a whole document to its split, if that is wanted.
  void add_document(std::span<const int32_t> document, const SplitSet& wanted,
                    DocumentBatch* batch) const {
    const std::string_view bytes(reinterpret_cast<const char*>(document.data()),
                                 document.size_bytes());
    const bool is_validation = input_.validation_part == ValidationPart::kWhole ||
                               (input_.validation_part == ValidationPart::kByDocument &&
                                in_validation_split(bytes, build_.validation_fraction));
    const Split split = is_validation ? kValidation : kTrain;
    if (wanted[split]) batch->tokens[split].add(document);
    count(document.size(), batch);
  }

  const BuildInput& input_;
  const TokenBuild& build_;

 private:
  int64_t vocab_size() const { return build_.identity.vocab_size; }

  // Reads llm.c's header. False if the file has none.
  bool read_header(std::string_view head) {
    const std::string& where = source_->where();
    if (head.size() < kHeaderBytes) return false;
    const auto field = [&](size_t i) {
      return from_bytes<int32_t>(head.data() + i * sizeof(int32_t));
    };
    for (const Kind& kind : kKinds) {
      if (field(0) == static_cast<int32_t>(__builtin_bswap32(static_cast<uint32_t>(kind.magic))))
        fail("{}: llm.c's token file in big-endian byte order; numpy's byteswap() converts it",
             where);
      if (field(0) != kind.magic) continue;
      if (field(1) != kind.version)
        fail("{}: llm.c's token file of version {}; expected version {}", where, field(1),
             kind.version);
      header_bytes_ = kHeaderBytes;
      token_bytes_ = kind.token_bytes;
      num_tokens_ = field(2);
      if (num_tokens_ < 0 || header_bytes_ + num_tokens_ * token_bytes_ != input_.bytes)
        fail("{}: its header says {} tokens of {} bytes, but the file has {} bytes", where,
             field(2), token_bytes_, input_.bytes);
      return true;
    }
    return false;
  }

  // Finds the size of an id in a file without a header.
  void choose_width(std::string_view head) {
    const std::string& where = source_->where();
    const TokenDType dtype = build_.token_dtype;
    const bool is_indexed = has_megatron_index(input_.path, dtype);
    if (is_indexed)
      token_bytes_ = MegatronIndex(MegatronIndex::beside(input_.path), input_.bytes).token_bytes();
    else if (dtype != TokenDType::kAuto)
      token_bytes_ = dtype == TokenDType::kU16 ? 2 : 4;
    const bool is_known = is_indexed || dtype != TokenDType::kAuto;
    const int64_t least_bytes = vocab_size() <= int64_t{1} << 16 ? 2 : 4;
    if (!is_known) token_bytes_ = least_bytes;
    const std::string other = is_known ? "" : unlike_tokens(head, token_bytes_);
    if (!other.empty())
      fail("{}: seems not to hold token ids of {} bytes: it {}. If it does, give --token_dtype={}",
           where, token_bytes_, other, token_bytes_ == 2 ? "u16" : "u32");
    if (token_bytes_ < least_bytes)
      fail("{}: ids of 2 bytes cannot come from a vocabulary of {}", where, vocab_size());
    if (input_.bytes % token_bytes_ != 0)
      fail("{}: has {} bytes, which is not a multiple of {}-byte tokens", where, input_.bytes,
           token_bytes_);
    num_tokens_ = input_.bytes / token_bytes_;
  }

  std::unique_ptr<ByteSource> source_;
  int64_t header_bytes_ = 0;
  int64_t token_bytes_ = 2;
  int64_t num_tokens_ = 0;
  int64_t next_token_ = 0;
  std::vector<char> buffer_;
};

// Documents end with an id.
class DelimitedTokens final : public TokenReader {
 public:
  using TokenReader::TokenReader;

  bool read(const SplitSet& wanted, DocumentBatch* batch) override {
    const size_t size = find_document();
    if (size == 0) return false;
    add_document(std::span(pending_).subspan(used_, size), wanted, batch);
    used_ += size;
    position_ = {position_.document + 1, position_.offset + static_cast<int64_t>(size)};
    return true;
  }

  ShardPosition position() const override { return position_; }
  void seek(const ShardPosition& position) override {
    seek_token(position.offset);
    position_ = position;
    pending_.clear();
    used_ = 0;
  }

 private:
  // Returns the size of the document at used_ of pending_, read if needed; 0 at the end.
  size_t find_document() {
    const int32_t end_id = *build_.end_of_tokens;
    const auto most_ids = static_cast<size_t>(build_.read.max_document_bytes) / sizeof(int32_t);
    for (size_t searched = 0;;) {
      const auto begin = pending_.begin() + static_cast<std::ptrdiff_t>(used_);
      const auto found =
          std::find(begin + static_cast<std::ptrdiff_t>(searched), pending_.end(), end_id);
      const auto size = static_cast<size_t>(found - begin);
      if (size > most_ids)
        fail(
            "{}: the document that begins at token {} has more than {} tokens; check that id {} "
            "ends documents (--end_id); if no id does, use --end_of_document=none",
            input_.path.string(), position_.offset, most_ids, end_id);
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
    const size_t got = read_ids(std::span(pending_).subspan(had));
    pending_.resize(had + got);
    return got > 0;
  }

  ShardPosition position_;
  std::vector<int32_t> pending_;  // Ids read; those before used_ are consumed.
  size_t used_ = 0;
};

// Megatron's index says where documents begin.
class IndexedTokens final : public TokenReader {
 public:
  IndexedTokens(std::unique_ptr<ByteSource> source, const BuildInput& input,
                const TokenBuild& build)
      : TokenReader(std::move(source), input, build),
        index_(MegatronIndex::beside(input.path), input.bytes) {
    seek({});
  }

  bool read(const SplitSet& wanted, DocumentBatch* batch) override {
    if (position_.document == index_.num_documents()) return false;
    const int64_t end = index_.begin(position_.document + 1);
    const int64_t size = end - position_.offset;
    const auto most_ids = build_.read.max_document_bytes / static_cast<int64_t>(sizeof(int32_t));
    if (size < 0 || size > most_ids)
      fail("{}: document {} has {} tokens, expected at most {}",
           MegatronIndex::beside(input_.path).string(), position_.document, size, most_ids);
    std::vector<int32_t> ids(static_cast<size_t>(size));
    read_ids(ids);
    add_document(ids, wanted, batch);
    position_ = {position_.document + 1, end};
    return true;
  }

  ShardPosition position() const override { return position_; }
  void seek(const ShardPosition& position) override {
    position_ = {position.document, index_.begin(position.document)};
    seek_token(position_.offset);
  }

 private:
  MegatronIndex index_;
  ShardPosition position_;
};

// One sequence without document ends, read in blocks.
class UndelimitedTokens final : public TokenReader {
 public:
  UndelimitedTokens(std::unique_ptr<ByteSource> source, const BuildInput& input,
                    const TokenBuild& build)
      : TokenReader(std::move(source), input, build) {
    const int64_t size = num_tokens();
    tail_ = size;
    if (input.validation_part == ValidationPart::kWhole) tail_ = 0;
    if (input.validation_part == ValidationPart::kTail)
      tail_ = static_cast<int64_t>(static_cast<double>(size) * (1.0 - build.validation_fraction));
  }

  bool read(const SplitSet& wanted, DocumentBatch* batch) override {
    const int64_t begin = next_token();
    const Split split = begin < tail_ ? kTrain : kValidation;
    const int64_t end = split == kTrain ? tail_ : num_tokens();
    if (begin == end) return false;
    std::vector<int32_t> ids(static_cast<size_t>(std::min<int64_t>(kBytesAtATime, end - begin)));
    read_ids(ids);
    count(ids.size(), batch);
    if (!wanted[split]) return true;
    batch->tokens[split].add(ids, begin != 0 && begin != tail_ ? DocumentIds::kContinues : 0);
    return true;
  }

  ShardPosition position() const override { return {0, next_token()}; }
  void seek(const ShardPosition& position) override { seek_token(position.offset); }

 private:
  int64_t tail_ = 0;  // The first token of the validation split.
};

}  // namespace

bool has_megatron_index(const std::filesystem::path& tokens, TokenDType dtype) {
  return dtype == TokenDType::kAuto && lower_extension(tokens) == ".bin" &&
         path_exists(MegatronIndex::beside(tokens));
}

std::unique_ptr<InputReader> read_token_bin(std::unique_ptr<ByteSource> source,
                                            const BuildInput& input, const TokenBuild& build) {
  if (has_megatron_index(input.path, build.token_dtype))
    return std::make_unique<IndexedTokens>(std::move(source), input, build);
  if (build.end_of_tokens)
    return std::make_unique<DelimitedTokens>(std::move(source), input, build);
  return std::make_unique<UndelimitedTokens>(std::move(source), input, build);
}

}  // namespace tessera
