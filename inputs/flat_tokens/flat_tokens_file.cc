// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/flat_tokens_file.h"

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/hdf5.h"

namespace tessera {
namespace {

// Small, so that reading one random row reads little else.
constexpr int64_t kTokenChunk = 65536;
constexpr int64_t kStartChunk = 16384;
constexpr int64_t kSampleTokens = 65536;
const std::string kDefinition = "/tokenizer";
constexpr int kDefinitionCompression = 6;
constexpr int64_t kLongestDefinition = int64_t{1} << 28;

template <typename T>
std::span<std::byte> bytes_of(std::span<T> values) {
  return std::as_writable_bytes(values);
}

// Branch-free, so that the loop vectorises. For numbers below 2^31, the sign bit of a difference
// says which is larger.
bool any_id_beyond(int64_t max_token_id, std::span<const uint32_t> encoded) {
  const int64_t limit = 2 * max_token_id + 1;
  if (limit >= int64_t{1} << 31) return true;  // Check each id.
  uint32_t bad = 0;
  for (const uint32_t token : encoded) bad |= token | (static_cast<uint32_t>(limit) - token);
  return (bad >> 31) != 0;
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

struct FlatTokensReader::Impl {
  std::string where;  // "file:split", for messages.
  Hdf5File file;
  Hdf5Dataset tokens;
  Hdf5Dataset starts;
  std::unique_ptr<Hdf5DirectReader> direct;  // Of `tokens`.
  int64_t num_tokens = 0;
  int64_t num_documents = 0;
  int64_t max_token_id = 0;
  int64_t vocab_size = 0;
  std::string tokenizer_name;
  std::string tokenizer_fingerprint;
  std::string source;
  std::string fingerprint;

  void open(const std::filesystem::path& path, const std::string& split);
  void check_shapes() const;
  void check_starts() const;
  void read_tokens(int64_t begin, std::span<uint32_t> encoded) const;
};

void FlatTokensReader::Impl::open(const std::filesystem::path& path, const std::string& split) {
  where = fmt::format("{}:{}", path.string(), split);
  file = Hdf5File::open(path);
  const std::vector<std::string> splits = splits_of(file);
  if (splits.empty())
    fail(
        "{}: an HDF5 file without flat tokens: no group has 'encoded_tokens'; "
        "`flat_tokens build` makes one",
        path.string());
  if (std::find(splits.begin(), splits.end(), split) == splits.end())
    fail(
        "{}: no split '{}'; the file has {}{}. Rebuild it with that split "
        "(--validation_fraction), or train without that dataset (--set eval_inputs={{}})",
        path.string(), split, fmt::join(splits, ", "), did_you_mean(split, splits));
  const int64_t version = file.integer_attribute(split, "format_version");
  if (version != kFlatTokensVersion)
    fail("{}: flat tokens of format {}; this build reads format {}", where, version,
         kFlatTokensVersion);
  max_token_id = file.integer_attribute(split, "max_token_id");
  vocab_size = file.integer_attribute(split, "vocab_size");
  tokenizer_name = file.text_attribute(split, "tokenizer");
  tokenizer_fingerprint = file.text_attribute(split, "tokenizer_fingerprint");
  if (file.has_attribute(split, "source")) source = file.text_attribute(split, "source");
  tokens = file.dataset(split + "/encoded_tokens");
  if (!file.has(split + "/seq_starts")) fail("{}: 'seq_starts' is missing", where);
  starts = file.dataset(split + "/seq_starts");
  check_shapes();
  direct = std::make_unique<Hdf5DirectReader>(tokens, where);
  num_tokens = tokens.elements();
  num_documents = starts.elements() - 1;
  check_starts();
}

void FlatTokensReader::Impl::check_shapes() const {
  if (tokens.type() != StoredType::kU32 || tokens.shape().size() != 1)
    fail("{}: 'encoded_tokens' is {} with {} dimensions; expected u32 with one", where,
         stored_type_name(tokens.type()), tokens.shape().size());
  if (starts.type() != StoredType::kU64 || starts.shape().size() != 1)
    fail("{}: 'seq_starts' is {} with {} dimensions; expected u64 with one", where,
         stored_type_name(starts.type()), starts.shape().size());
  if (tokens.elements() == 0) fail("{}: the split has no tokens", where);
  if (starts.elements() < 2)
    fail("{}: 'seq_starts' has {} entries; expected one for each document and one for the end",
         where, starts.elements());
  if (!tokens.fully_stored() || !starts.fully_stored())
    fail("{}: part of the data was never written; build the file again", where);
  if (vocab_size < 1 || vocab_size > int64_t{1} << 31)
    fail("{}: vocab_size is {}; expected 1 to 2^31", where, vocab_size);
  if (max_token_id < 0 || max_token_id >= vocab_size)
    fail("{}: max_token_id {} is not below vocab_size {}", where, max_token_id, vocab_size);
}

// In blocks, to bound memory.
void FlatTokensReader::Impl::check_starts() const {
  std::vector<uint64_t> block;
  uint64_t previous = 0;
  for (int64_t begin = 0; begin <= num_documents; begin += kStartChunk) {
    block.resize(std::min(kStartChunk, num_documents + 1 - begin));
    starts.read({{begin}, {static_cast<int64_t>(block.size())}}, bytes_of(std::span(block)));
    if (begin == 0 && block[0] != 0) fail("{}: seq_starts[0] is {}; expected 0", where, block[0]);
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i] < previous)
        fail("{}: seq_starts[{}] is {}, less than the {} before it", where,
             begin + static_cast<int64_t>(i), block[i], previous);
      previous = block[i];
    }
  }
  if (previous != static_cast<uint64_t>(num_tokens))
    fail("{}: seq_starts ends at {}, but there are {} tokens", where, previous, num_tokens);
}

void FlatTokensReader::Impl::read_tokens(int64_t begin, std::span<uint32_t> encoded) const {
  const int64_t size = static_cast<int64_t>(encoded.size());
  CHECK(begin >= 0 && begin + size <= num_tokens, "tokens [{}, {}) of {}", begin, begin + size,
        num_tokens);
  direct->read(begin, bytes_of(encoded));
  if (!any_id_beyond(max_token_id, encoded)) return;
  for (int64_t i = 0; i < size; ++i)
    if (token_id(encoded[i]) > max_token_id)
      fail("{}: token {} has id {}, beyond the file's max_token_id {}", where, begin + i,
           token_id(encoded[i]), max_token_id);
}

FlatTokensReader::FlatTokensReader(const std::filesystem::path& path, const std::string& split)
    : impl_(std::make_unique<Impl>()) {
  impl_->open(path, split);
  std::vector<uint32_t> sample(std::min(impl_->num_tokens, kSampleTokens));
  impl_->read_tokens(0, sample);
  impl_->fingerprint = fmt::format("{} tokens, {} documents, {}, crc {:08x}", impl_->num_tokens,
                                   impl_->num_documents, impl_->tokenizer_fingerprint,
                                   crc32c(std::as_bytes(std::span(sample))));
}

FlatTokensReader::~FlatTokensReader() = default;
FlatTokensReader::FlatTokensReader(FlatTokensReader&&) noexcept = default;

std::vector<std::string> FlatTokensReader::splits(const std::filesystem::path& path) {
  return splits_of(Hdf5File::open(path));
}

int64_t FlatTokensReader::num_tokens() const { return impl_->num_tokens; }
int64_t FlatTokensReader::num_documents() const { return impl_->num_documents; }
int64_t FlatTokensReader::max_token_id() const { return impl_->max_token_id; }
int64_t FlatTokensReader::vocab_size() const { return impl_->vocab_size; }
const std::string& FlatTokensReader::tokenizer_name() const { return impl_->tokenizer_name; }
const std::string& FlatTokensReader::tokenizer_fingerprint() const {
  return impl_->tokenizer_fingerprint;
}
const std::string& FlatTokensReader::source() const { return impl_->source; }
const std::string& FlatTokensReader::fingerprint() const { return impl_->fingerprint; }

std::string FlatTokensReader::tokenizer_definition() const {
  if (!impl_->file.has(kDefinition)) return "";
  const Hdf5Dataset stored = impl_->file.dataset(kDefinition);
  if (stored.type() != StoredType::kU8 || stored.shape().size() != 1 ||
      stored.elements() > kLongestDefinition || !stored.fully_stored())
    fail("{}: '{}', the tokenizer's definition, is {} of {} elements; expected at most {} of u8",
         impl_->where, kDefinition, stored_type_name(stored.type()), stored.elements(),
         kLongestDefinition);
  std::string definition(static_cast<size_t>(stored.elements()), '\0');
  stored.read(std::as_writable_bytes(std::span(definition)));
  return definition;
}

void FlatTokensReader::read(int64_t begin, std::span<uint32_t> encoded) const {
  impl_->read_tokens(begin, encoded);
}

void FlatTokensReader::read_starts(int64_t begin, std::span<uint64_t> starts) const {
  impl_->starts.read({{begin}, {static_cast<int64_t>(starts.size())}}, bytes_of(starts));
}

struct FlatTokensWriter::Impl {
  std::filesystem::path path;
  std::filesystem::path temporary;
  FlatTokensWriterOptions options;
  TokenizerIdentity tokenizer;
  Hdf5File file;
  bool finished = false;

  std::string split;
  Hdf5Dataset tokens;
  Hdf5Dataset starts;
  std::vector<uint32_t> token_block;
  std::vector<uint64_t> start_block;
  int64_t num_tokens = 0;
  int32_t max_token_id = 0;

  void flush_tokens() {
    tokens.append(std::as_bytes(std::span(token_block)));
    token_block.clear();
  }
  void flush_starts() {
    starts.append(std::as_bytes(std::span(start_block)));
    start_block.clear();
  }
  // `first_mark`: the start mark of the first id.
  void append(std::span<const int32_t> ids, uint32_t first_mark);
  void end_split();
};

void FlatTokensWriter::Impl::append(std::span<const int32_t> ids, uint32_t first_mark) {
  num_tokens += static_cast<int64_t>(ids.size());
  while (!ids.empty()) {
    const size_t room = static_cast<size_t>(kTokenChunk) - token_block.size();
    const std::span<const int32_t> some = ids.first(std::min(room, ids.size()));
    const size_t begin = token_block.size();
    token_block.resize(begin + some.size());
    int32_t largest = 0;
    int32_t signs = 0;
    for (size_t i = 0; i < some.size(); ++i) {
      largest = std::max(largest, some[i]);
      signs |= some[i];
      token_block[begin + i] = 2 * static_cast<uint32_t>(some[i]);
    }
    CHECK(signs >= 0 && largest < tokenizer.vocab_size, "a token id of {} or less than 0", largest);
    token_block[begin] |= first_mark;
    first_mark = 0;
    max_token_id = std::max(max_token_id, largest);
    if (static_cast<int64_t>(token_block.size()) == kTokenChunk) flush_tokens();
    ids = ids.subspan(some.size());
  }
}

void FlatTokensWriter::Impl::end_split() {
  if (split.empty()) return;
  start_block.push_back(static_cast<uint64_t>(num_tokens));
  flush_tokens();
  flush_starts();
  tokens = {};
  starts = {};
  file.set_attribute(split, "format_version", kFlatTokensVersion);
  file.set_attribute(split, "max_token_id", int64_t{max_token_id});
  file.set_attribute(split, "vocab_size", tokenizer.vocab_size);
  file.set_attribute(split, "tokenizer", tokenizer.name);
  file.set_attribute(split, "tokenizer_fingerprint", tokenizer.fingerprint);
  file.set_attribute(split, "source", options.source);
  split.clear();
}

TokenizerIdentity identity_of(const Tokenizer& tokenizer) {
  return {tokenizer.name(), tokenizer.fingerprint(), tokenizer.definition(),
          tokenizer.vocab_size()};
}

TokenizerIdentity unknown_tokenizer(int64_t vocab_size) {
  return {"unknown", fmt::format("unknown-{}", vocab_size), "", vocab_size};
}

FlatTokensWriter::FlatTokensWriter(const std::filesystem::path& path, TokenizerIdentity tokenizer,
                                   const FlatTokensWriterOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  require_replaceable(path);
  impl_->temporary = temporary_beside(path, "new");
  impl_->options = options;
  impl_->tokenizer = std::move(tokenizer);
  impl_->file = Hdf5File::create(impl_->temporary);
  const std::string& definition = impl_->tokenizer.definition;
  if (definition.empty()) return;
  impl_->file
      .create_dataset(kDefinition, StoredType::kU8, {static_cast<int64_t>(definition.size())},
                      {.compression = kDefinitionCompression})
      .write(std::as_bytes(std::span(definition)));
}

FlatTokensWriter::~FlatTokensWriter() {
  if (impl_->finished) return;
  const std::filesystem::path temporary = impl_->temporary;
  impl_.reset();  // Closes the file first.
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
}

void FlatTokensWriter::begin_split(const std::string& split) {
  impl_->end_split();
  impl_->split = split;
  impl_->num_tokens = 0;
  impl_->max_token_id = 0;
  const auto growable = [&](int64_t chunk) {
    return Hdf5Layout{
        .chunk = {chunk}, .compression = impl_->options.compression, .growable = true};
  };
  impl_->tokens = impl_->file.create_dataset(split + "/encoded_tokens", StoredType::kU32, {0},
                                             growable(kTokenChunk));
  impl_->starts = impl_->file.create_dataset(split + "/seq_starts", StoredType::kU64, {0},
                                             growable(kStartChunk));
}

void FlatTokensWriter::add_document(std::span<const int32_t> ids) {
  CHECK(!impl_->split.empty(), "begin_split comes first");
  if (ids.empty()) return;
  impl_->start_block.push_back(static_cast<uint64_t>(impl_->num_tokens));
  if (static_cast<int64_t>(impl_->start_block.size()) >= kStartChunk) impl_->flush_starts();
  impl_->append(ids, 1);
}

void FlatTokensWriter::extend_document(std::span<const int32_t> ids) {
  CHECK(impl_->num_tokens > 0, "add_document comes first");
  impl_->append(ids, 0);
}

int64_t FlatTokensWriter::split_tokens() const { return impl_->num_tokens; }

void FlatTokensWriter::finish() {
  impl_->end_split();
  impl_->file.close();
  sync_file(impl_->temporary);
  std::filesystem::rename(impl_->temporary, impl_->path);
  impl_->finished = true;
  sync_directory(impl_->path.has_parent_path() ? impl_->path.parent_path() : ".");
}

}  // namespace tessera
