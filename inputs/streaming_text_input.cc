// SPDX-License-Identifier: Apache-2.0
#include "inputs/streaming_text_input.h"

#include <algorithm>
#include <span>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/hparams/template.h"
#include "inputs/held_out.h"
#include "inputs/text_corpus.h"

namespace tessera {

template class HolderOf<BaseInput, StreamingTextInput::HParams>;

namespace {

namespace fs = std::filesystem;

const TemplateRegistrar<BaseInput, StreamingTextInput> kRegisterStreamingTextInput;
constexpr int64_t kDefaultStreamSeed = 1234;
// Of each lane: evens out that documents are of many lengths.
constexpr int64_t kRowsAhead = 4;

// Keys of a state.
constexpr const char* kRowsKey = "global_batch_size";
constexpr const char* kFilesKey = "data";
std::string lane_key(int64_t row) { return fmt::format("lane/{:06}", row); }
std::string broken_key(int64_t row) { return fmt::format("{}{:06}", kBrokenDocumentsPrefix, row); }

// Names below `root`, so that a folder may be moved between two starts of a run.
uint32_t hash_of_names(const std::vector<fs::path>& files, const fs::path& root) {
  uint32_t hash = 0;
  for (const fs::path& file : files) {
    const std::string name = file.lexically_relative(root).generic_string() + '\n';
    hash = crc32c(std::as_bytes(std::span(name)), hash);
  }
  return hash;
}

void check_at_least(int64_t value, int64_t least, std::string_view field) {
  if (value < least)
    fail("StreamingTextInput: {} is {}; expected at least {}", field, value, least);
}

}  // namespace

StreamingTextInput::StreamingTextInput(const HParams& p)
    : p_(p), name_(p.name.empty() ? std::string(enum_name(p.split)) : p.name) {
  check();
}

void StreamingTextInput::check() const {
  check_at_least(p_.global_batch_size.get(), 1, "global_batch_size");
  check_at_least(p_.seq_len.get(), 1, "seq_len");
  check_at_least(p_.shuffle_documents, 1, "shuffle_documents");
  check_at_least(p_.num_workers, 1, "num_workers");
  if (p_.num_batches < 1 && p_.num_batches != -1)
    fail("StreamingTextInput: num_batches is {}; expected -1 (all) or at least 1", p_.num_batches);
  check_validation_fraction(p_.validation_fraction);
  if (p_.split == StreamSplit::kValidation && p_.validation_fraction == 0.0)
    fail(
        "StreamingTextInput: split is 'validation', but validation_fraction is 0, so nothing is "
        "held out; set it as in the training input, or name other files and split 'all'");
}

int64_t StreamingTextInput::seed() const { return p_.seed.get_or(kDefaultStreamSeed); }

std::shared_ptr<const TextShards> StreamingTextInput::find_shards() const {
  std::vector<fs::path> files = find_corpus_files({p_.path.get()});
  if (files.empty()) fail("{}: there is no text file in it", p_.path.get());
  const auto count = static_cast<int64_t>(files.size());
  const auto seed_bits = static_cast<uint64_t>(seed());
  return std::make_shared<const TextShards>(
      TextShards{.files = std::move(files),
                 .order = ShardOrder(count, global_batch_size(),
                                     p_.shuffle ? std::optional(seed_bits) : std::nullopt),
                 .read = {.text_field = p_.text_field,
                          .broken = p_.broken_documents,
                          .require_utf8 = p_.require_utf8,
                          .separator = p_.separator},
                 .format = p_.format,
                 .split = p_.split,
                 .validation_fraction = p_.validation_fraction,
                 .repeat = p_.repeat,
                 .shuffle_block = p_.shuffle_documents,
                 .seed = seed_bits});
}

// All that decides which token follows which, but for what the files hold: one that was broken may
// be mended while a run waits.
std::string StreamingTextInput::describe(const TextShards& shards) const {
  fs::path root = p_.path.get();
  if (!fs::is_directory(root)) root = root.parent_path();
  return fmt::format("{} shards (names {:08x}), {} with {:g} held out, {}, seed {}, tokenizer {}",
                     shards.files.size(), hash_of_names(shards.files, root), enum_name(p_.split),
                     p_.validation_fraction,
                     !p_.shuffle ? "in order"
                     : p_.shuffle_documents == 1
                         ? "shards shuffled"
                         : fmt::format("shuffled by {}", p_.shuffle_documents),
                     seed(), tokenizer_->fingerprint());
}

void StreamingTextInput::attach(const Infeed& infeed) {
  CHECK(!workers_, "input '{}' is attached twice", name_);
  const ErrorContext where(fmt::format("input '{}'", name_));
  tokenizer_ = make_tokenizer(p_.tokenizer);
  layout_ = std::make_unique<RowLayout>(p_.labels, tokenizer_.get());
  const std::shared_ptr<const TextShards> shards = find_shards();
  data_ = describe(*shards);
  std::vector<std::unique_ptr<TextLane>> lanes;
  for (const RowRange& range : rows_of_host(*this, infeed))
    for (int64_t row = range.begin; row < range.end; ++row) {
      rows_.push_back(row);
      lanes.push_back(std::make_unique<TextLane>(
          shards, *tokenizer_, TextLane::Options{p_.labels, p_.seq_len.get(), p_.end_of_document},
          row));
    }
  workers_ = std::make_unique<LaneWorkers>(std::move(lanes), p_.num_workers, kRowsAhead);
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
    if (tokens.empty()) continue;  // Padding.
    const TokenRow row = token_row(batch, static_cast<int64_t>(i));
    fill_row(*layout_, tokens, row);
    ended = false;
  }
  return ended ? std::nullopt : std::optional(std::move(batch));
}

std::optional<Batch> StreamingTextInput::get_next() {
  if (reached_limit()) return std::nullopt;
  std::optional<Batch> batch = peek();
  // The end too: a state then is the same whichever rows end on this host.
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
                   {{kRowsKey, std::to_string(global_batch_size())}, {kFilesKey, data_}}};
  for (size_t i = 0; i < rows_.size(); ++i) {
    const LanePlace place = workers_->place(i);
    state.extra[lane_key(rows_[i])] = lane_place_text(place);
    if (place.document.broken.count > 0)
      state.extra[broken_key(rows_[i])] = broken_documents_entry(place.document.broken);
  }
  return state;
}

void StreamingTextInput::restore(const InputState& state) {
  CHECK(workers_, "input '{}' is used before attach", name_);
  const auto find = [&](const std::string& key) -> const std::string* {
    const auto entry = state.extra.find(key);
    return entry == state.extra.end() ? nullptr : &entry->second;
  };
  const std::string* data = find(kFilesKey);
  if (data == nullptr || *data != data_)
    fail("input '{}': the text is not what the run was started on: it was ({}), it is ({})", name_,
         data == nullptr ? "of another kind of input" : *data, data_);
  const std::string* batch_size = find(kRowsKey);
  if (batch_size == nullptr || *batch_size != std::to_string(global_batch_size()))
    fail(
        "input '{}': the run had batches of {} rows, each with documents of its own; it cannot go "
        "on with batches of {}",
        name_, batch_size == nullptr ? "?" : *batch_size, global_batch_size());
  std::vector<LanePlace> places;
  for (const int64_t row : rows_) {
    const std::string* text = find(lane_key(row));
    if (text == nullptr) fail("input '{}': the saved state lacks row {}", name_, row);
    places.push_back(parse_lane_place(*text, fmt::format("input '{}': row {}", name_, row)));
    if (const std::string* broken = find(broken_key(row)))
      places.back().document.broken = parse_broken_documents(*broken);
  }
  position_ = state.position;
  workers_->restart(places);
}

}  // namespace tessera
