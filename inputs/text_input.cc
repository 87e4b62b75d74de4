// SPDX-License-Identifier: Apache-2.0
#include "inputs/text_input.h"

#include "core/base/error.h"
#include "core/hparams/template.h"
#include "inputs/frozen_corpus.h"

namespace tessera {

template class HolderOf<BaseInput, TextInput::HParams>;

namespace {

const TemplateRegistrar<BaseInput, TextInput> kRegisterTextInput;
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
  tokens.shuffle = p.shuffle ? Shuffle::kFull : Shuffle::kNone;
  tokens.repeat = p.repeat;
  tokens.num_batches = p.num_batches;
  tokens.seed = p.seed;
  return std::make_unique<FlatTokensInput>(tokens);
}

CorpusRequest request_of(const TextInput::HParams& p) {
  return {.path = p.path,
          .tokenizer = p.tokenizer,
          .text_field = p.text_field,
          .separator = p.separator,
          .validation_fraction = p.validation_fraction};
}

}  // namespace

TextInput::TextInput(const HParams& p)
    : p_(p), tokens_(make_tokens(p, std::string(kFrozenCorpus))) {}

void TextInput::attach(const Infeed& infeed) {
  const std::filesystem::path frozen = infeed.run_directory / kFrozenName;
  const CorpusRequest request = request_of(p_);
  const auto holds_request = [&] {
    return FlatTokensReader(frozen, p_.split).source().starts_with(request_text(request) + ":");
  };
  if (!std::filesystem::exists(frozen) || (!infeed.run_begun && !holds_request())) {
    freeze_corpus(request, frozen);
  } else if (!holds_request()) {
    fail(
        "{} was frozen from other text ({}); this run asks for {}. Give it a --job_log_dir of its "
        "own",
        frozen.string(), FlatTokensReader(frozen, p_.split).source(), request_text(request));
  }
  tokens_ = make_tokens(p_, frozen);
  tokens_->attach(infeed);
}

}  // namespace tessera
