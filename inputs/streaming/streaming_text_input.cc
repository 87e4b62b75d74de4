// SPDX-License-Identifier: Apache-2.0
#include "inputs/streaming/streaming_text_input.h"

#include <numeric>
#include <span>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/file.h"
#include "inputs/content_sample.h"
#include "inputs/readers/document_format.h"
#include "inputs/readers/text_files.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {

REGISTER_TEMPLATE(BaseInput, StreamingTextInput);

namespace {

constexpr int64_t kDefaultStreamSeed = 1234;
// Rows queued per shard; evens out document lengths.
constexpr int64_t kRowsAhead = 4;

// State keys, which are part of the checkpoint format.
constexpr const char* kRowsKey = "global_batch_size";
constexpr const char* kFilesKey = "data";
std::string cursor_key(int64_t row) { return fmt::format("lane/{:06}", row); }
std::string corrupt_key(int64_t row) { return fmt::format("{}{:06}", kCorruptRecordsPrefix, row); }

// Hashes names below the folder, which may be moved between starts.
uint32_t hash_of_names(const std::vector<TextFile>& files) {
  uint32_t hash = 0;
  for (const TextFile& file : files) {
    const std::string name = file.name + '\n';
    hash = crc32c(std::as_bytes(std::span(name)), hash);
  }
  return hash;
}

// Returns entries of a state, one for each file, that must be equal on all hosts.
std::map<std::string, std::string> content_entries(const std::vector<TextFile>& files,
                                                   uint64_t seed) {
  std::map<std::string, std::string> entries;
  ContentSample sample(seed);
  for (const TextFile& each : files)
    entries[fmt::format("{}{}", kContentPrefix, each.name)] =
        sample.entry_of_file(each.name, each.path);
  return entries;
}

constexpr std::string_view kHostMark = "{host}";

std::string path_of_host(std::string path, const Infeed& infeed) {
  for (size_t at; (at = path.find(kHostMark)) != std::string::npos;)
    path.replace(at, kHostMark.size(), std::to_string(infeed.infeed_host_index));
  return path;
}

// Keeps every N-th file, as all hosts see the same.
void keep_files_of_host(const Infeed& infeed, TextFiles* found) {
  std::vector<TextFile> own;
  for (size_t i = 0; i < found->files.size(); ++i)
    if (static_cast<int64_t>(i) % infeed.num_infeed_hosts == infeed.infeed_host_index)
      own.push_back(std::move(found->files[i]));
  if (own.empty())
    fail("sharding=by_host: {} files are too few for {} hosts; split them", found->files.size(),
         infeed.num_infeed_hosts);
  found->files = std::move(own);
}

}  // namespace

StreamingTextInput::StreamingTextInput(const HParams& p)
    : p_(p), name_(p.name.empty() ? std::string(enum_name(p.split)) : p.name) {
  if (p_.split == StreamSplit::kValidation && p_.validation_fraction == 0.0)
    fail(
        "StreamingTextInput: split is 'validation', but validation_fraction is 0, so the "
        "split is empty; set it as in the training input, or name other files and split 'all'");
  if (p_.format != kAutoFormat) named_format(p_.format);  // Checks it.
}

int64_t StreamingTextInput::seed() const { return p_.seed.get_or(kDefaultStreamSeed); }

std::shared_ptr<const TextShards> StreamingTextInput::find_shards(const Infeed& infeed) {
  const bool is_by_host = p_.sharding == Sharding::kByHost;
  const std::string path = is_by_host ? path_of_host(p_.path.get(), infeed) : p_.path.get();
  TextFiles found = find_text_files({path});
  if (found.files.empty()) fail("{}: no text files found", path);
  if (!found.left_out.empty()) remarks_ = {fmt::format("{}: {}", path, found.left_out)};
  if (is_by_host) {
    host_ = infeed.infeed_host_index;
    num_hosts_ = infeed.num_infeed_hosts;
    if (std::ssize(rows_) * num_hosts_ != global_batch_size())
      fail(
          "sharding=by_host: host {} has {} of {} rows; each row must be on one host, and each "
          "host "
          "must have as many. Split the axis batch over hosts, or use sharding=global",
          host_, rows_.size(), global_batch_size());
    const TextFiles all = found;
    if (path == p_.path.get()) keep_files_of_host(infeed, &found);
    if (num_hosts_ > 1) add_own_files(all, found);
  } else if (infeed.num_infeed_hosts > 1) {
    content_ = content_entries(found.files, static_cast<uint64_t>(seed()));
  }
  const auto rows = is_by_host ? std::ssize(rows_) : global_batch_size();
  const auto count = static_cast<int64_t>(found.files.size());
  const auto seed_bits = static_cast<uint64_t>(seed());
  return std::make_shared<const TextShards>(TextShards{
      .files = std::move(found.files),
      .order = ShardOrder(count, rows, p_.shuffle ? std::optional(seed_bits) : std::nullopt),
      .read = {.text_field = p_.text_field,
               .corrupt_records = p_.broken_documents,
               .require_utf8 = p_.require_utf8,
               .separator = p_.separator,
               .map = make_document_map(p_.document_map_tpl)},
      .format = p_.format,
      .split = p_.split,
      .validation_fraction = p_.validation_fraction,
      .repeat = p_.repeat,
      .shuffle_block = p_.shuffle_documents,
      .seed = seed_bits});
}

std::string StreamingTextInput::data_key() const {
  if (p_.sharding == Sharding::kGlobal) return kFilesKey;
  return fmt::format("{}/host {} of {}", kFilesKey, host_, num_hosts_);
}

// Hosts compare entries of one name: what they share must be equal, and each file's content has one
// reader.
void StreamingTextInput::add_own_files(const TextFiles& all, const TextFiles& own) {
  if (all.files.size() != own.files.size())
    content_[fmt::format("{}files of all hosts", kContentPrefix)] =
        fmt::format("{} files, names {:08x}", all.files.size(), hash_of_names(all.files));
  for (const TextFile& each : own.files) {
    const std::string content = ContentSample(0).entry_of_file("", each.path);
    content_[fmt::format("{}reader of {}", kContentPrefix, content)] =
        fmt::format("host {}, {}", host_, each.name);
  }
}

// Returns everything that determines the order of tokens, except the contents of the files: a
// damaged file may be repaired before a run resumes.
std::string StreamingTextInput::describe(const TextShards& shards) const {
  return fmt::format(
      "{} shards (names {:08x}), {} with {:g} held out, {}, seed {}, tokenizer {}",
      shards.files.size(), hash_of_names(shards.files), enum_name(p_.split), p_.validation_fraction,
      !p_.shuffle                 ? "in order"
      : p_.shuffle_documents == 1 ? "shards shuffled"
                                  : fmt::format("shuffled by {}", p_.shuffle_documents),
      seed(), tokenizer_->fingerprint());
}

void StreamingTextInput::attach(const Infeed& infeed) {
  CHECK(!workers_, "input '{}' is attached twice", name_);
  const ErrorContext where(fmt::format("input '{}'", name_));
  tokenizer_ = make_tokenizer(p_.tokenizer);
  layout_ = std::make_unique<RowLayout>(p_.labels, tokenizer_.get());
  for (const RowRange& range : rows_of_host(*this, infeed))
    for (int64_t row = range.begin; row < range.end; ++row) rows_.push_back(row);
  const std::shared_ptr<const TextShards> shards = find_shards(infeed);
  data_ = describe(*shards);
  std::vector<int64_t> read = rows_;  // Rows as they are counted in the order of the shards.
  if (p_.sharding == Sharding::kByHost) std::iota(read.begin(), read.end(), 0);
  workers_ = std::make_unique<StreamWorkers>(
      shards, *tokenizer_,
      StreamOptions{p_.labels, p_.seq_len.get(), p_.end_of_document, p_.num_workers, kRowsAhead},
      read);
}

Batch StreamingTextInput::specification() const {
  const int64_t rows = workers_ ? static_cast<int64_t>(rows_.size()) : global_batch_size();
  return token_batch_specification(rows, p_.seq_len.get());
}

bool StreamingTextInput::reached_limit() const {
  return p_.num_batches >= 0 && position_ >= p_.num_batches;
}

std::optional<Batch> StreamingTextInput::peek() {
  CHECK(workers_, "input '{}' is used before attach", name_);
  if (reached_limit()) return std::nullopt;
  Batch batch = make_token_batch(static_cast<int64_t>(rows_.size()), p_.seq_len.get());
  bool ended = true;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const std::vector<uint32_t>& tokens = workers_->front(i);
    if (tokens.empty()) continue;  // The row stays padding.
    const TokenRow row = token_row(batch, static_cast<int64_t>(i));
    fill_row(*layout_, tokens, row);
    ended = false;
  }
  return ended ? std::nullopt : std::optional(std::move(batch));
}

std::optional<Batch> StreamingTextInput::get_next() {
  if (reached_limit()) return std::nullopt;
  content_.clear();  // Compared before.
  std::optional<Batch> batch = peek();
  // At the end too, so that the state does not depend on which rows this host has.
  for (size_t i = 0; i < rows_.size(); ++i) workers_->pop(i);
  if (batch) ++position_;
  return batch;
}

void StreamingTextInput::reset() {
  position_ = 0;
  if (workers_) workers_->restart();
}

InputState StreamingTextInput::state() const {
  InputState state{position_,
                   {{kRowsKey, std::to_string(global_batch_size())}, {data_key(), data_}}};
  state.cursors.insert(content_.begin(), content_.end());
  for (size_t i = 0; i < rows_.size(); ++i) {
    const StreamCursor place = workers_->place(i);
    state.cursors[cursor_key(rows_[i])] = stream_cursor_text(place);
    if (place.document.corrupt.count > 0)
      state.cursors[corrupt_key(rows_[i])] = corrupt_records_entry(place.document.corrupt);
  }
  return state;
}

void StreamingTextInput::restore(const InputState& state) {
  CHECK(workers_, "input '{}' is used before attach", name_);
  const auto find = [&](const std::string& key) -> const std::string* {
    const auto entry = state.cursors.find(key);
    return entry == state.cursors.end() ? nullptr : &entry->second;
  };
  const std::string* data = find(data_key());
  if (data == nullptr && p_.sharding == Sharding::kByHost)
    fail(
        "input '{}': the checkpoint has no position of host {} of {}: sharding=by_host resumes on "
        "as many hosts as the run had",
        name_, host_, num_hosts_);
  if (data == nullptr || *data != data_)
    fail("input '{}': the text differs from the run's: it was ({}), it is ({})", name_,
         data == nullptr ? "of another kind of input" : *data, data_);
  const std::string* batch_size = find(kRowsKey);
  if (batch_size == nullptr || *batch_size != std::to_string(global_batch_size()))
    fail(
        "input '{}': the run has batches of {} rows, each with its own documents; it cannot "
        "resume with batches of {}",
        name_, batch_size == nullptr ? "?" : *batch_size, global_batch_size());
  std::vector<StreamCursor> places;
  for (const int64_t row : rows_) {
    const std::string* text = find(cursor_key(row));
    if (text == nullptr) fail("input '{}': the saved state has no row {}", name_, row);
    places.push_back(parse_stream_cursor(*text, fmt::format("input '{}': row {}", name_, row)));
    if (const std::string* count = find(corrupt_key(row)))
      places.back().document.corrupt = parse_corrupt_records(*count);
  }
  position_ = state.position;
  workers_->restart(places);
}

}  // namespace tessera
