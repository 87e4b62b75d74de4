// SPDX-License-Identifier: Apache-2.0
#include "inputs/streaming/streaming_text_input.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/hparams/convert.h"
#include "core/io/file.h"
#include "inputs/content_sample.h"
#include "inputs/readers/document_format.h"
#include "inputs/readers/text_files.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {

REGISTER_TEMPLATE(BaseInput, StreamingTextInput);

namespace {

// Rows queued per lane; evens out document lengths.
constexpr int64_t kRowsAhead = 4;

// State keys, which are part of the checkpoint format.
constexpr const char* kLanesKey = "lanes";
constexpr const char* kFilesKey = "data";
std::string cursor_key(int64_t lane) { return fmt::format("lane/{:06}", lane); }
std::string corrupt_key(int64_t lane) {
  return fmt::format("{}{:06}", kCorruptRecordsPrefix, lane);
}

// Hashes names below the folder, which may be moved between starts.
uint32_t hash_of_names(const std::vector<TextFile>& files) {
  uint32_t hash = 0;
  for (const TextFile& file : files) {
    const std::string name = file.name + '\n';
    hash = crc32c(std::as_bytes(std::span(name)), hash);
  }
  return hash;
}

// Returns what names a file's contents: its version in an object store, or a sample of its bytes.
std::string contents_of_file(const TextFile& each, std::string_view name, ContentSample& sample) {
  if (!each.object_version.empty())
    return fmt::format("{} bytes, version {}", each.object_bytes, each.object_version);
  return sample.entry_of_file(name, each.path);
}

// Returns entries of a state, one for each file, that must be equal on all hosts.
std::map<std::string, std::string> content_entries(const std::vector<TextFile>& files,
                                                   uint64_t seed) {
  std::map<std::string, std::string> entries;
  ContentSample sample(seed);
  for (const TextFile& each : files)
    entries[fmt::format("{}{}", kContentPrefix, each.name)] =
        contents_of_file(each, each.name, sample);
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

ExampleStream stream_of(const StreamingTextInput::HParams& p) {
  ExampleStream stream = example_stream(p);
  if (p.name.empty()) stream.name = enum_name(p.split);
  stream.repeat = p.repeat;
  return stream;
}

}  // namespace

StreamingTextInput::StreamingTextInput(const HParams& p) : IndexedInput(stream_of(p)), p_(p) {
  if (p_.split == StreamSplit::kValidation && p_.validation_fraction == 0.0 &&
      p_.validation_docs_per_file == 0)
    fail(
        "StreamingTextInput: split is 'validation', but validation_fraction is 0, so the "
        "split is empty; set it as in the training input, or name other files and split 'all'");
  if (p_.format != kAutoFormat) named_format(p_.format);  // Checks it.
}

void StreamingTextInput::open(const Infeed& infeed) {
  CHECK(!workers_, "input '{}' is attached twice", name());
  const ErrorContext where(fmt::format("input '{}'", name()));
  tokenizer_ = make_tokenizer(p_.tokenizer);
  layout_ = std::make_unique<RowLayout>(p_.labels, tokenizer_.get());
  TextFiles found;
  find_files(infeed, &found);
  shards_ = std::make_unique<TextShards>(
      TextShards{.files = std::move(found.files),
                 .order = ShardOrder(1, 1, std::nullopt),
                 .read = {.text_field = p_.text_field,
                          .corrupt_records = p_.broken_documents,
                          .require_utf8 = p_.require_utf8,
                          .separator = p_.separator,
                          .map = make_document_map(p_.document_map_tpl)},
                 .format = p_.format,
                 .split = p_.split,
                 .validation_fraction = p_.validation_fraction,
                 .validation_docs_per_file = p_.validation_docs_per_file,
                 .repeat = p_.repeat,
                 .shuffle_block = p_.shuffle_documents,
                 .seed = stream().seed,
                 .labels = p_.labels,
                 .seq_len = p_.seq_len.get(),
                 .end_of_document = p_.end_of_document,
                 .threads = p_.num_workers,
                 .rows_ahead = kRowsAhead});
  data_ = describe();
  open_lanes(global_batch_size());
}

void StreamingTextInput::find_files(const Infeed& infeed, TextFiles* found) {
  const bool is_by_host = p_.sharding == Sharding::kByHost;
  const std::string path = is_by_host ? path_of_host(p_.path.get(), infeed) : p_.path.get();
  *found = find_text_files({path});
  if (found->files.empty()) fail("{}: no text files found", path);
  if (!found->left_out.empty()) remarks_ = {fmt::format("{}: {}", path, found->left_out)};
  if (is_by_host) {
    host_ = infeed.infeed_host_index;
    num_hosts_ = infeed.num_infeed_hosts;
    const auto rows = std::ssize(sizes().host_examples(0));
    if (rows * num_hosts_ != global_batch_size())
      fail(
          "sharding=by_host: host {} has {} of {} rows; each row must be on one host, and each "
          "host must have as many. Split the axis batch over hosts, or use sharding=global",
          host_, rows, global_batch_size());
    const TextFiles all = *found;
    if (path == p_.path.get()) keep_files_of_host(infeed, found);
    if (num_hosts_ > 1) add_own_files(all, *found);
  } else if (infeed.num_infeed_hosts > 1) {
    content_ = content_entries(found->files, stream().seed);
  }
}

void StreamingTextInput::open_lanes(int64_t count) {
  const std::set<int64_t> lanes = sizes().host_lanes(count);
  num_lanes_ = count;
  lanes_.assign(lanes.begin(), lanes.end());
  released_.assign(lanes_.size(), 0);
  std::vector<int64_t> places = lanes_;  // In the order of the shards.
  const bool is_by_host = p_.sharding == Sharding::kByHost;
  if (is_by_host) std::iota(places.begin(), places.end(), 0);
  shards_->order = ShardOrder(std::ssize(shards_->files), is_by_host ? std::ssize(lanes_) : count,
                              p_.shuffle ? std::optional(stream().seed) : std::nullopt);
  workers_ = nullptr;  // Ends its threads.
  workers_ = std::make_unique<StreamWorkers>(std::make_shared<const TextShards>(*shards_),
                                             *tokenizer_, places);
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
    ContentSample sample(0);
    content_[fmt::format("{}reader of {}", kContentPrefix, contents_of_file(each, "", sample))] =
        fmt::format("host {}, {}", host_, each.name);
  }
}

// Returns everything that determines the order of tokens, except the contents of the files: a
// damaged file may be repaired before a run resumes.
std::string StreamingTextInput::describe() const {
  const std::string held_out =
      p_.validation_docs_per_file > 0
          ? fmt::format("the first {} of each", p_.validation_docs_per_file)
          : fmt::format("{:g}", p_.validation_fraction);
  return fmt::format(
      "{} shards (names {:08x}), {} with {} held out, {}, seed {}, tokenizer {}",
      shards_->files.size(), hash_of_names(shards_->files), enum_name(p_.split), held_out,
      !p_.shuffle                 ? "in order"
      : p_.shuffle_documents == 1 ? "shards shuffled"
                                  : fmt::format("shuffled by {}", p_.shuffle_documents),
      static_cast<int64_t>(stream().seed), tokenizer_->fingerprint());
}

// Returns how many of the first examples are rows of lanes_[lane].
int64_t StreamingTextInput::rows_of_lane(size_t lane, int64_t examples) const {
  return std::max<int64_t>(0, (examples - lanes_[lane] + num_lanes_ - 1) / num_lanes_);
}

void StreamingTextInput::fill_example(int64_t, int64_t index, const TokenRow& row) const {
  const auto lane =
      static_cast<size_t>(std::ranges::lower_bound(lanes_, index % num_lanes_) - lanes_.begin());
  const std::vector<uint32_t>& tokens = workers_->row(lane, index / num_lanes_ - released_[lane]);
  if (tokens.empty()) return clear_row(row);
  fill_row(*layout_, tokens, row);
}

std::optional<Batch> StreamingTextInput::peek() {
  std::optional<Batch> batch = IndexedInput::peek();
  if (!batch || p_.repeat) return batch;
  const int64_t after = sizes().examples_before(position() + 1);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const int64_t last = rows_of_lane(i, after) - released_[i] - 1;
    if (!workers_->row(i, std::max<int64_t>(last, 0)).empty()) return batch;
  }
  return std::nullopt;
}

// At the end too, so that the state does not depend on which lanes this host has.
void StreamingTextInput::release(int64_t examples) {
  const auto rows = [&](size_t lane) { return rows_of_lane(lane, examples); };
  for (size_t i = 0; i < lanes_.size(); ++i)  // Errors come before any change.
    if (rows(i) > released_[i]) workers_->row(i, rows(i) - released_[i] - 1);
  for (size_t i = 0; i < lanes_.size(); ++i)
    for (; released_[i] < rows(i); ++released_[i]) workers_->pop(i);
}

void StreamingTextInput::reset() {
  IndexedInput::reset();
  if (workers_) open_lanes(global_batch_size());
}

std::map<std::string, std::string> StreamingTextInput::cursors_at(int64_t) const {
  std::map<std::string, std::string> cursors = {{kLanesKey, std::to_string(num_lanes_)},
                                                {data_key(), data_}};
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const StreamCursor place = workers_->place(i);
    cursors[cursor_key(lanes_[i])] = stream_cursor_text(place);
    if (place.document.corrupt.count > 0)
      cursors[corrupt_key(lanes_[i])] = corrupt_records_entry(place.document.corrupt);
  }
  return cursors;
}

void StreamingTextInput::resume(const std::map<std::string, std::string>& cursors,
                                int64_t examples) {
  const auto find = [&](const std::string& key) -> const std::string* {
    const auto entry = cursors.find(key);
    return entry == cursors.end() ? nullptr : &entry->second;
  };
  const bool is_by_host = p_.sharding == Sharding::kByHost;
  const std::string* data = find(data_key());
  if (data == nullptr && is_by_host)
    fail(
        "input '{}': the checkpoint has no position of host {} of {}: sharding=by_host resumes on "
        "as many hosts as the run had",
        name(), host_, num_hosts_);
  if (data == nullptr || *data != data_)
    fail("input '{}': the text differs from the run's: it was ({}), it is ({})", name(),
         data == nullptr ? "of another kind of input" : *data, data_);
  const std::string* saved = find(kLanesKey);
  const int64_t lanes = saved == nullptr ? 0 : parse_integer(*saved).value_or(0);
  if (lanes < 1 || find(cursor_key(lanes - 1)) == nullptr)
    fail("input '{}': the saved state does not have the positions of '{}' lanes", name(),
         saved == nullptr ? "" : *saved);
  if (is_by_host && lanes != global_batch_size())
    fail(
        "input '{}': the run has batches of {} rows; with sharding=by_host it cannot resume with "
        "batches of {}",
        name(), lanes, global_batch_size());
  open_lanes(lanes);
  std::vector<StreamCursor> places;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const int64_t lane = lanes_[i];
    const std::string* text = find(cursor_key(lane));
    if (text == nullptr) fail("input '{}': the saved state has no lane {}", name(), lane);
    places.push_back(parse_stream_cursor(*text, fmt::format("input '{}': lane {}", name(), lane)));
    if (const std::string* count = find(corrupt_key(lane)))
      places.back().document.corrupt = parse_corrupt_records(*count);
    released_[i] = rows_of_lane(i, examples);
  }
  workers_->restart(places);
}

}  // namespace tessera
