// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/flat_tokens_input.h"

#include <algorithm>

#include "core/base/error.h"
#include "inputs/readers/text_files.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {

template class HolderOf<BaseInput, FlatTokensInput::HParams>;

namespace {

const TemplateRegistrar<BaseInput, FlatTokensInput> kRegisterFlatTokensInput;
constexpr int64_t kDefaultOrderSeed = 1234;

ExampleStream token_stream(const FlatTokensInput::HParams& p) {
  return {.name = p.name.empty() ? p.split : p.name,
          .global_batch_size = p.global_batch_size.get(),
          .seq_len = p.seq_len.get(),
          .seed = static_cast<uint64_t>(p.seed.get_or(kDefaultOrderSeed)),
          .shuffle = p.shuffle,
          .era_length = p.era_length,
          .repeat = p.repeat,
          .num_batches = p.num_batches};
}

RowOptions options_of(const FlatTokensInput::HParams& p, const ExampleStream& stream) {
  return {.packed = p.packed,
          .best_fit = p.best_fit,
          .labels = p.labels,
          .seq_len = stream.seq_len,
          .shifts = p.shuffle != Shuffle::kNone && p.repeat,
          .seed = stream.seed};
}

}  // namespace

FlatTokensInput::FlatTokensInput(const HParams& p) : IndexedInput(token_stream(p)), p_(p) {
  if (p.packed && p.best_fit)
    fail(
        "input '{}': best_fit needs packed=false; packed rows are cut from the concatenated "
        "documents",
        name());
}

std::vector<std::filesystem::path> FlatTokensInput::find_files(const Infeed& infeed) const {
  std::filesystem::path path = p_.path.get();
  if (p_.path.get().starts_with(kRunDirectory))
    path = infeed.run_directory / p_.path.get().substr(kRunDirectory.size());
  if (is_file_pattern(path.string())) {
    std::vector<std::filesystem::path> found = matching_files(path.string());
    if (found.empty()) fail("input '{}': no file matches {}", name(), path.string());
    return found;
  }
  if (!std::filesystem::exists(path))
    fail(
        "input '{}': {}: no such file; build one with 'flat_tokens build', or name another in the "
        "experiment or with --set",
        name(), path.string());
  if (std::filesystem::is_directory(path))
    fail("input '{}': {} is a folder; use a file pattern: {}", name(), path.string(),
         (path / "*.h5").string());
  return {path};
}

void FlatTokensInput::open(const Infeed& infeed) {
  for (const std::filesystem::path& path : find_files(infeed)) {
    files_.emplace_back(path, p_.split, options_of(p_, stream()));
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + files_.back().size());
    vocab_size_ = std::max(vocab_size_, files_.back().reader().vocab_size());
  }
  open_tokenizer();
  check_files();
  layout_ = std::make_unique<RowLayout>(p_.labels, tokenizer_.get());
  if (ends_.back() < 1)
    fail("{}:{}: {} tokens in {} documents are too few for a label{}", files_[0].path().string(),
         p_.split, files_[0].reader().num_tokens(), files_[0].reader().num_documents(),
         files_.size() == 1 ? "" : "; so are those of the other files");
}

// Opens the tokenizer. Error if its fingerprint differs from the file's.
void FlatTokensInput::open_tokenizer() {
  const FlatTokensReader& reader = files_[0].reader();
  const std::string path = files_[0].path().string();
  if (!p_.tokenizer.empty()) {
    tokenizer_ = make_tokenizer(p_.tokenizer);
  } else if (const std::string definition = reader.tokenizer_definition(); !definition.empty()) {
    const ErrorContext where(path);
    tokenizer_ = tokenizer_of_definition(reader.tokenizer_name(), definition);
  } else if (reader.tokenizer_name() == "bytes") {
    tokenizer_ = make_tokenizer(reader.tokenizer_name());
  } else {
    return;
  }
  if (tokenizer_->fingerprint() != reader.tokenizer_fingerprint())
    fail(
        "input '{}': {}: its tokens were made by tokenizer '{}' with fingerprint '{}'; {} '{}' has "
        "'{}'. Rebuild the tokens, or name the tokenizer that made them",
        name(), path, reader.tokenizer_name(), reader.tokenizer_fingerprint(),
        p_.tokenizer.empty() ? "this build's" : "the given", tokenizer_->name(),
        tokenizer_->fingerprint());
}

// All files must have one tokenizer, and only ids in its vocabulary.
void FlatTokensInput::check_files() const {
  const FlatTokensReader& first = files_[0].reader();
  for (const FlatTokensRows& file : files_) {
    const FlatTokensReader& reader = file.reader();
    if (reader.tokenizer_fingerprint() != first.tokenizer_fingerprint())
      fail(
          "input '{}': {} was made with tokenizer '{}' (fingerprint '{}'), but {} with '{}' "
          "('{}'); "
          "all files of an input must have the same tokenizer",
          name(), files_[0].path().string(), first.tokenizer_name(), first.tokenizer_fingerprint(),
          file.path().string(), reader.tokenizer_name(), reader.tokenizer_fingerprint());
    if (tokenizer_ && reader.max_token_id() >= tokenizer_->vocab_size())
      fail("input '{}': {}: token ids reach {}, but its tokenizer '{}' has {}", name(),
           file.path().string(), reader.max_token_id(), tokenizer_->name(),
           tokenizer_->vocab_size());
  }
}

std::vector<DataPart> FlatTokensInput::data_parts() const {
  const std::filesystem::path root = pattern_root(p_.path.get());
  std::vector<DataPart> parts;
  for (const FlatTokensRows& file : files_)
    parts.push_back({file.path().lexically_relative(root).generic_string(),
                     file.reader().fingerprint(), file.size()});
  return parts;
}

std::string FlatTokensInput::ids_fingerprint() const {
  return files_.at(0).reader().tokenizer_fingerprint();
}

void FlatTokensInput::fill_example(int64_t epoch, int64_t index, const TokenRow& row) const {
  const auto file = std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin();
  const int64_t begin = file == 0 ? 0 : ends_[static_cast<size_t>(file - 1)];
  files_[static_cast<size_t>(file)].fill(epoch, index - begin, *layout_, row);
}

}  // namespace tessera
