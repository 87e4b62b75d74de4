// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens_input.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/hparams/template.h"
#include "inputs/permutation.h"

namespace tessera {
namespace {

const TemplateRegistrar<BaseInput, FlatTokensInput> kRegister;
constexpr int64_t kDefaultSeed = 1234;

Stream stream_of(const FlatTokensInput::HParams& p) {
  return {.name = p.name.empty() ? p.split : p.name,
          .global_batch_size = p.global_batch_size.get(),
          .seq_len = p.seq_len.get(),
          .seed = static_cast<uint64_t>(p.seed.get_or(kDefaultSeed)),
          .shuffle = p.shuffle,
          .repeat = p.repeat,
          .num_batches = p.num_batches};
}

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

FlatTokensInput::FlatTokensInput(const HParams& p) : IndexedInput(stream_of(p)), p_(p) {
  if (p.packed && p.best_fit)
    fail(
        "input '{}': packed rows are cut from the run of all documents; best_fit needs "
        "packed=false",
        name());
}

void FlatTokensInput::open(const Infeed& infeed) {
  std::filesystem::path path = p_.path.get();
  if (p_.path.get().starts_with(kRunDirectory))
    path = infeed.run_directory / p_.path.get().substr(kRunDirectory.size());
  if (!std::filesystem::exists(path))
    fail(
        "input '{}': {}: no such file; write one with 'flat_tokens build', or name another in the "
        "experiment or with --set",
        name(), path.string());
  reader_ = std::make_unique<FlatTokensReader>(path, p_.split);
  open_tokenizer(path.string());
  layout_ = std::make_unique<RowLayout>(p_.labels, tokenizer_.get());
  if (p_.packed) {
    count_packed_rows();
  } else {
    find_document_windows();
    num_examples_ = static_cast<int64_t>(document_windows_.size());
    if (p_.best_fit) share_rows();
  }
  if (num_examples_ < 1)
    fail("{}:{}: {} tokens in {} documents leave nothing to predict", path.string(), p_.split,
         reader_->num_tokens(), reader_->num_documents());
}

// Ids mean what the tokenizer says that made them, so another one is refused.
void FlatTokensInput::open_tokenizer(const std::string& path) {
  const std::string& name = reader_->tokenizer_name();
  if (!p_.tokenizer.empty()) {
    tokenizer_ = make_tokenizer(p_.tokenizer);
  } else if (const std::string definition = reader_->tokenizer_definition(); !definition.empty()) {
    const ErrorContext where(path);
    tokenizer_ = tokenizer_of_definition(name, definition);
  } else if (name == "bytes") {
    tokenizer_ = make_tokenizer(name);
  } else {
    return;
  }
  if (tokenizer_->fingerprint() != reader_->tokenizer_fingerprint())
    fail(
        "input '{}': {}: its tokens were made by tokenizer '{}' with fingerprint '{}'; {} '{}' has "
        "'{}'. Build the tokens again, or name the tokenizer that made them",
        this->name(), path, name, reader_->tokenizer_fingerprint(),
        p_.tokenizer.empty() ? "this build's" : "the given", tokenizer_->name(),
        tokenizer_->fingerprint());
  if (reader_->max_token_id() >= tokenizer_->vocab_size())
    fail("input '{}': {}: token ids reach {}, but its tokenizer '{}' has {}", this->name(), path,
         reader_->max_token_id(), name, tokenizer_->vocab_size());
}

// Rows of shuffled training data begin elsewhere in each epoch, so that a token is not always
// predicted from the same context. It costs a row an epoch.
void FlatTokensInput::count_packed_rows() {
  const int64_t seq_len = stream().seq_len;
  const int64_t positions = reader_->num_tokens() - (tokens_per_row(p_.labels, seq_len) - seq_len);
  num_examples_ = divide_up(positions, seq_len);
  if (const int64_t whole = positions / seq_len; p_.shuffle && p_.repeat && whole >= 2) {
    num_examples_ = whole - 1;
    max_phase_ = positions - num_examples_ * seq_len;
  }
}

// A document longer than a row takes several, so that every token is a label somewhere.
void FlatTokensInput::find_document_windows() {
  const int64_t seq_len = stream().seq_len;
  const int64_t ahead = tokens_per_row(p_.labels, seq_len) - seq_len;
  std::vector<uint64_t> starts(static_cast<size_t>(reader_->num_documents()) + 1);
  reader_->read_starts(0, starts);
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const auto end = static_cast<int64_t>(starts[i + 1]);
    for (auto begin = static_cast<int64_t>(starts[i]); begin + ahead < end; begin += seq_len)
      document_windows_.push_back({begin, std::min(seq_len + ahead, end - begin)});
  }
}

void FlatTokensInput::share_rows() {
  std::vector<int32_t> lengths;
  for (const Window& window : document_windows_)
    lengths.push_back(static_cast<int32_t>(window.size));
  shared_rows_.emplace(lengths, static_cast<int32_t>(tokens_per_row(p_.labels, stream().seq_len)));
  num_examples_ = shared_rows_->num_rows();
}

int64_t FlatTokensInput::phase(int64_t epoch) const {
  if (max_phase_ == 0) return 0;
  const uint64_t bits =
      mix_bits(static_cast<uint64_t>(epoch), mix_bits(stream().seed, 0x7068617365u));
  return static_cast<int64_t>(bits % static_cast<uint64_t>(max_phase_ + 1));
}

FlatTokensInput::Window FlatTokensInput::packed_window(int64_t epoch, int64_t index) const {
  const int64_t begin = phase(epoch) + index * stream().seq_len;
  return {begin,
          std::min(tokens_per_row(p_.labels, stream().seq_len), reader_->num_tokens() - begin)};
}

std::vector<FlatTokensInput::Window> FlatTokensInput::windows_of(int64_t epoch,
                                                                 int64_t index) const {
  if (p_.packed) return {packed_window(epoch, index)};
  if (!shared_rows_) return {document_windows_[static_cast<size_t>(index)]};
  std::vector<Window> windows;
  for (const uint32_t piece : shared_rows_->row(index)) windows.push_back(document_windows_[piece]);
  return windows;
}

void FlatTokensInput::fill_example(int64_t epoch, int64_t index, const TokenRow& row) const {
  std::vector<uint32_t> encoded;
  for (const Window& window : windows_of(epoch, index)) {
    const size_t begin = encoded.size();
    encoded.resize(begin + static_cast<size_t>(window.size));
    reader_->read(window.begin, std::span(encoded).subspan(begin));
    // What goes on with a document from another row is a segment of its own.
    if (begin > 0) encoded[begin] = encode_token(token_id(encoded[begin]), true);
  }
  fill_row(*layout_, encoded, row);
}

}  // namespace tessera
