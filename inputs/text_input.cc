// SPDX-License-Identifier: Apache-2.0
#include "inputs/text_input.h"

#include "core/base/error.h"
#include "core/hparams/template.h"
#include "inputs/text_corpus.h"
#include "inputs/tokenizer.h"

namespace tessera {
namespace {

const TemplateRegistrar<BaseInput, TextInput> kRegister;
constexpr std::string_view kFrozenName = kFrozenCorpus.substr(kRunDirectory.size());

// The file's place is known once the run's directory is.
std::unique_ptr<FlatTokensInput> make_tokens(const TextInput::HParams& p, const std::string& path) {
  FlatTokensInput::HParams tokens;
  tokens.path = path;
  tokens.split = p.split;
  tokens.name = p.name;
  tokens.global_batch_size = p.global_batch_size;
  tokens.seq_len = p.seq_len;
  tokens.labels = p.labels;
  tokens.shuffle = p.shuffle;
  tokens.repeat = p.repeat;
  tokens.num_batches = p.num_batches;
  tokens.seed = p.seed;
  return std::make_unique<FlatTokensInput>(tokens);
}

Corpus find_corpus(const TextInput::HParams& p) {
  if (!p.path.empty()) {
    std::filesystem::path root = p.path;
    if (!std::filesystem::is_directory(root)) root = root.parent_path();
    return split_corpus(find_text_files({p.path}), root.empty() ? "." : root,
                        p.validation_fraction);
  }
  std::filesystem::path root;
  const auto files = own_text_files(&root);
  if (files.empty())
    fail(
        "there are no sources of Tessera beside this program to train on; name a text file or a "
        "folder with --set input.path=PATH");
  return split_corpus(files, root, p.validation_fraction);
}

// What was asked for, apart from what the files then held: a run goes on with its frozen corpus
// when sources change, but not with another corpus than it was told.
std::string request_of(const TextInput::HParams& p) {
  const std::string path = p.path.empty()
                               ? "Tessera's own sources"
                               : std::filesystem::absolute(p.path).lexically_normal().string();
  return fmt::format("{}, {:g} held out", path, p.validation_fraction);
}

void freeze(const TextInput::HParams& p, const std::filesystem::path& frozen) {
  Corpus corpus = find_corpus(p);
  corpus.description = fmt::format("{}: {}", request_of(p), corpus.description);
  build_flat_tokens(corpus, *make_tokenizer("bytes"), frozen);
}

}  // namespace

TextInput::TextInput(const HParams& p)
    : p_(p), tokens_(make_tokens(p, std::string(kFrozenCorpus))) {}

void TextInput::attach(const Infeed& infeed) {
  const std::filesystem::path frozen = infeed.run_directory / kFrozenName;
  const auto holds_request = [&] {
    return FlatTokensReader(frozen, p_.split).source().starts_with(request_of(p_) + ":");
  };
  if (!std::filesystem::exists(frozen) || (!infeed.run_begun && !holds_request())) {
    freeze(p_, frozen);
  } else if (!holds_request()) {
    fail(
        "{} was frozen from other text ({}); this run asks for {}. Give it a --job_log_dir of its "
        "own",
        frozen.string(), FlatTokensReader(frozen, p_.split).source(), request_of(p_));
  }
  tokens_ = make_tokens(p_, frozen);
  tokens_->attach(infeed);
}

}  // namespace tessera
