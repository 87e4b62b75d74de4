// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/flat_tokens_file.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"

namespace tessera {
namespace {

// Small, so that reading one random row reads little else.
constexpr int64_t kTokenChunk = 65536;
constexpr int64_t kStartChunk = 16384;
constexpr int64_t kSampleTokens = 65536;
const std::string kDefinition = "/tokenizer", kManifest = "/manifest";
constexpr int kTextCompression = 1;  // Vocabularies are large: more saves little and takes long.
constexpr int64_t kLongestText = int64_t{1} << 28;

// Returns whether an id is too large. Branch-free, so that the loop vectorises. For numbers below
// 2^31, the sign bit of a difference shows which is larger.
bool any_id_beyond(int64_t max_token_id, std::span<const uint32_t> encoded) {
  const int64_t limit = 2 * max_token_id + 1;
  if (limit >= int64_t{1} << 31) return true;  // Check each id.
  uint32_t bad = 0;
  for (const uint32_t token : encoded) bad |= token | (static_cast<uint32_t>(limit) - token);
  return (bad >> 31) != 0;
}

template <typename T>
void flush(std::vector<T>* block, Hdf5Dataset* dataset) {
  dataset->append(std::as_bytes(std::span(*block)));
  block->clear();
}

std::vector<std::string> splits_of(const Hdf5File& file) {
  std::set<std::string> splits;
  for (const std::string& path : file.dataset_paths()) {
    const size_t slash = path.rfind('/');
    if (slash != std::string::npos && path.substr(slash + 1) == "encoded_tokens")
      splits.insert(path.substr(0, slash));
  }
  return {splits.begin(), splits.end()};
}

}  // namespace

void FlatTokensReader::check_shapes() const {
  if (tokens_->type() != StoredType::kU32 || tokens_->shape().size() != 1)
    fail("{}: 'encoded_tokens' is {} with {} dimensions; expected u32 with one", where_,
         stored_type_name(tokens_->type()), tokens_->shape().size());
  if (starts_.type() != StoredType::kU64 || starts_.shape().size() != 1)
    fail("{}: 'seq_starts' is {} with {} dimensions; expected u64 with one", where_,
         stored_type_name(starts_.type()), starts_.shape().size());
  if (tokens_->is_virtual() || starts_.is_virtual())
    fail("{}: its data are in other files (virtual datasets), which are not read", where_);
  if (tokens_->elements() == 0) fail("{}: the split has no tokens", where_);
  if (starts_.elements() < 2)
    fail("{}: 'seq_starts' has {} entries; expected one for each document and one for the end",
         where_, starts_.elements());
  if (!tokens_->fully_stored() || !starts_.fully_stored())
    fail("{}: part of the data was never written; build the file again", where_);
  if (vocab_size_ < 1 || vocab_size_ > int64_t{1} << 31)
    fail("{}: vocab_size is {}; expected 1 to 2^31", where_, vocab_size_);
  if (max_token_id_ < 0 || max_token_id_ >= vocab_size_)
    fail("{}: max_token_id {} is not below vocab_size {}", where_, max_token_id_, vocab_size_);
}

// Checks in blocks, to bound memory.
void FlatTokensReader::check_starts() const {
  std::vector<uint64_t> block;
  uint64_t previous = 0;
  for (int64_t begin = 0; begin <= num_documents_; begin += kStartChunk) {
    block.resize(std::min(kStartChunk, num_documents_ + 1 - begin));
    starts_.read({{begin}, {static_cast<int64_t>(block.size())}},
                 std::as_writable_bytes(std::span(block)));
    if (begin == 0 && block[0] != 0) fail("{}: seq_starts[0] is {}; expected 0", where_, block[0]);
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i] < previous)
        fail("{}: seq_starts[{}] is {}, less than the {} before it", where_,
             begin + static_cast<int64_t>(i), block[i], previous);
      previous = block[i];
    }
  }
  if (previous != static_cast<uint64_t>(num_tokens_))
    fail("{}: seq_starts ends at {}, but there are {} tokens", where_, previous, num_tokens_);
}

void FlatTokensReader::read(int64_t begin, std::span<uint32_t> encoded) const {
  const int64_t size = static_cast<int64_t>(encoded.size());
  CHECK(begin >= 0 && begin + size <= num_tokens_, "tokens [{}, {}) of {}", begin, begin + size,
        num_tokens_);
  direct_->read(begin, std::as_writable_bytes(encoded));
  if (!any_id_beyond(max_token_id_, encoded)) return;
  for (int64_t i = 0; i < size; ++i)
    if (token_id(encoded[i]) > max_token_id_)
      fail("{}: token {} has id {}, beyond the file's max_token_id {}", where_, begin + i,
           token_id(encoded[i]), max_token_id_);
}

FlatTokensReader::FlatTokensReader(const std::filesystem::path& path, const std::string& split) {
  where_ = fmt::format("{}:{}", path.string(), split);
  file_ = Hdf5File::open(path);
  const std::vector<std::string> splits = splits_of(file_);
  if (splits.empty())
    fail(
        "{}: an HDF5 file without flat tokens: no group has 'encoded_tokens'; "
        "`flat_tokens build` makes one",
        path.string());
  if (std::ranges::find(splits, split) == splits.end())
    fail(
        "{}: no split '{}'; the file has {}{}. Rebuild it with that split "
        "(--validation_fraction), or train without that dataset (--set eval_inputs={{}})",
        path.string(), split, fmt::join(splits, ", "), did_you_mean(split, splits));
  const int64_t version = file_.integer_attribute(split, "format_version");
  if (version != kFlatTokensVersion)
    fail("{}: flat tokens of format {}; this build reads format {}", where_, version,
         kFlatTokensVersion);
  max_token_id_ = file_.integer_attribute(split, "max_token_id");
  vocab_size_ = file_.integer_attribute(split, "vocab_size");
  tokenizer_name_ = file_.text_attribute(split, "tokenizer");
  tokenizer_fingerprint_ = file_.text_attribute(split, "tokenizer_fingerprint");
  if (file_.has_attribute(split, "source")) source_ = file_.text_attribute(split, "source");
  tokens_ = std::make_unique<Hdf5Dataset>(file_.dataset(split + "/encoded_tokens"));
  if (!file_.has(split + "/seq_starts")) fail("{}: 'seq_starts' is missing", where_);
  starts_ = file_.dataset(split + "/seq_starts");
  check_shapes();
  direct_ = std::make_unique<Hdf5DirectReader>(*tokens_, where_);
  num_tokens_ = tokens_->elements();
  num_documents_ = starts_.elements() - 1;
  check_starts();
  std::vector<uint32_t> sample(std::min(num_tokens_, kSampleTokens));
  read(0, sample);
  fingerprint_ = fmt::format("{} tokens, {} documents, {}, crc {:08x}", num_tokens_, num_documents_,
                             tokenizer_fingerprint_, crc32c(std::as_bytes(std::span(sample))));
}

std::vector<std::string> FlatTokensReader::splits(const std::filesystem::path& path) {
  return splits_of(Hdf5File::open(path));
}

std::string FlatTokensReader::tokenizer_definition() const { return stored_text(kDefinition); }

std::string FlatTokensReader::manifest() const { return stored_text(kManifest); }

std::string FlatTokensReader::stored_text(const std::string& dataset) const {
  if (!file_.has(dataset)) return "";
  const Hdf5Dataset stored = file_.dataset(dataset);
  if (stored.type() != StoredType::kU8 || stored.shape().size() != 1 ||
      stored.elements() > kLongestText || !stored.fully_stored())
    fail("{}: '{}' is {} of {} elements; expected at most {} of u8", where_, dataset,
         stored_type_name(stored.type()), stored.elements(), kLongestText);
  std::string text(static_cast<size_t>(stored.elements()), '\0');
  stored.read(std::as_writable_bytes(std::span(text)));
  return text;
}

void FlatTokensReader::read_starts(int64_t begin, std::span<uint64_t> starts) const {
  starts_.read({{begin}, {static_cast<int64_t>(starts.size())}}, std::as_writable_bytes(starts));
}

void FlatTokensWriter::append(std::span<const int32_t> ids, uint32_t first_mark) {
  num_tokens_ += static_cast<int64_t>(ids.size());
  while (!ids.empty()) {
    const size_t room = static_cast<size_t>(kTokenChunk) - token_block_.size();
    const std::span<const int32_t> some = ids.first(std::min(room, ids.size()));
    const size_t begin = token_block_.size();
    token_block_.resize(begin + some.size());
    int32_t largest = 0;
    int32_t signs = 0;
    for (size_t i = 0; i < some.size(); ++i) {
      largest = std::max(largest, some[i]);
      signs |= some[i];
      token_block_[begin + i] = 2 * static_cast<uint32_t>(some[i]);
    }
    CHECK(signs >= 0 && largest < tokenizer_.vocab_size, "a token id of {} or less than 0",
          largest);
    token_block_[begin] |= first_mark;
    first_mark = 0;
    max_token_id_ = std::max(max_token_id_, largest);
    if (static_cast<int64_t>(token_block_.size()) == kTokenChunk) flush(&token_block_, &tokens_);
    ids = ids.subspan(some.size());
  }
}

void FlatTokensWriter::end_split() {
  if (split_.empty()) return;
  start_block_.push_back(static_cast<uint64_t>(num_tokens_));
  flush(&token_block_, &tokens_);
  flush(&start_block_, &starts_);
  tokens_ = {};
  starts_ = {};
  file_.set_attribute(split_, "format_version", kFlatTokensVersion);
  file_.set_attribute(split_, "max_token_id", int64_t{max_token_id_});
  file_.set_attribute(split_, "vocab_size", tokenizer_.vocab_size);
  file_.set_attribute(split_, "tokenizer", tokenizer_.name);
  file_.set_attribute(split_, "tokenizer_fingerprint", tokenizer_.fingerprint);
  file_.set_attribute(split_, "source", options_.source);
  split_.clear();
}

TokenizerIdentity identity_of(const Tokenizer& tokenizer) {
  return {tokenizer.name(), tokenizer.fingerprint(), tokenizer.definition(),
          tokenizer.vocab_size()};
}

TokenizerIdentity unknown_tokenizer(int64_t vocab_size) {
  return {"unknown", fmt::format("unknown-{}", vocab_size), "", vocab_size};
}

FlatTokensWriter::FlatTokensWriter(std::filesystem::path path, TokenizerIdentity tokenizer,
                                   const FlatTokensWriterOptions& options)
    : name_(std::move(path)),
      tokenizer_(std::move(tokenizer)),
      options_(options),
      file_(Hdf5File::create(name_.place(), 1, name_.path())) {
  const auto store = [&](const std::string& dataset, const std::string& text) {
    if (text.empty()) return;
    file_
        .create_dataset(dataset, StoredType::kU8, {static_cast<int64_t>(text.size())},
                        {.compression = kTextCompression})
        .write(std::as_bytes(std::span(text)));
  };
  store(kDefinition, tokenizer_.definition);
  store(kManifest, options_.manifest);
}

void FlatTokensWriter::begin_split(const std::string& split) {
  end_split();
  split_ = split;
  num_tokens_ = 0;
  max_token_id_ = 0;
  const auto growable = [&](int64_t chunk) {
    return Hdf5Layout{.chunk = {chunk}, .compression = options_.compression, .growable = true};
  };
  tokens_ =
      file_.create_dataset(split + "/encoded_tokens", StoredType::kU32, {0}, growable(kTokenChunk));
  starts_ =
      file_.create_dataset(split + "/seq_starts", StoredType::kU64, {0}, growable(kStartChunk));
}

void FlatTokensWriter::add_document(std::span<const int32_t> ids) {
  CHECK(!split_.empty(), "begin_split comes first");
  if (ids.empty()) return;
  start_block_.push_back(static_cast<uint64_t>(num_tokens_));
  if (static_cast<int64_t>(start_block_.size()) >= kStartChunk) flush(&start_block_, &starts_);
  append(ids, 1);
}

void FlatTokensWriter::extend_document(std::span<const int32_t> ids) {
  CHECK(num_tokens_ > 0, "add_document comes first");
  append(ids, 0);
}

void FlatTokensWriter::finish() {
  end_split();
  file_.close();
  sync_file(name_.place());
  name_.finish();
}

}  // namespace tessera
