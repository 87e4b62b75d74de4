// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/text_input.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <thread>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/hparams/text.h"
#include "core/io/storage/storage.h"
#include "inputs/flat_tokens/token_build.h"
#include "inputs/readers/text_files.h"
#include "inputs/tokenizers/make_tokenizer.h"

namespace tessera {

REGISTER_TEMPLATE(BaseInput, TextInput);

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSnapshotName = kCorpusSnapshot.substr(kRunDirectory.size());

std::string absolute_path(const std::string& path) {
  return is_url(path) ? path : fs::absolute(path).lexically_normal().string();
}

// Returns the request that a snapshot was built for, stored at the beginning of the file's
// `source`. It does not depend on the contents of the text files, so a run keeps its snapshot when
// they change. The words are part of the file format: with others, existing snapshots would be
// rebuilt.
std::string request_text(const TextInput::HParams& p) {
  const TextInput::HParams defaults;
  std::string text =
      p.path.empty() ? "Tessera's own sources" : absolute_path(path_or_url(p.path, "input path"));
  text += fmt::format(", {:g} held out", p.validation_fraction);
  if (p.tokenizer != defaults.tokenizer) text += fmt::format(", tokenizer {}", p.tokenizer);
  if (p.text_field != defaults.text_field) text += fmt::format(", field '{}'", p.text_field);
  if (p.separator != defaults.separator) text += fmt::format(", parted by '{}'", p.separator);
  if (p.document_map_tpl.has()) {
    const std::string map = to_toml(p.document_map_tpl.to_tree());
    text += fmt::format(", mapped by {} {:08x}", p.document_map_tpl.name(),
                        crc32c(std::as_bytes(std::span(map))));
  }
  return text;
}

BuildInputs find_snapshot_inputs(const TextInput::HParams& p) {
  const BuildInputOptions options{.validation_fraction = p.validation_fraction,
                                  .texts_have_separator = !p.separator.empty()};
  TextFiles own;
  if (p.path.empty()) own.files = tessera_source_files();
  if (p.path.empty() && own.files.empty())
    fail(
        "Tessera's own sources are not installed beside this program; name a text file or a "
        "folder to train on with --set input.path=PATH");
  BuildInputs found =
      p.path.empty() ? build_inputs_of(own, options) : find_build_inputs({p.path}, options);
  for (const BuildInput& input : found.inputs)
    if (input.format == nullptr)
      fail("{} holds tokens, not text; make a token file of it with 'flat_tokens build'",
           input.path.string());
  found.files = fmt::format("{}: {}", request_text(p), found.files);
  return found;
}

// Builds the snapshot. Returns the files that were left out (TextFiles).
std::string build_snapshot(const TextInput::HParams& p, const fs::path& output) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(p.tokenizer);
  TokenBuild build;
  build.from = find_snapshot_inputs(p);
  build.output = output;
  build.tokenizer = tokenizer.get();
  build.identity = identity_of(*tokenizer);
  build.document_end = tokenizer->end_id();
  build.validation_fraction = p.validation_fraction;
  // The byte tokenizer encodes any bytes; others would replace invalid UTF-8.
  build.read = {.text_field = p.text_field,
                .require_utf8 = p.tokenizer != "bytes",
                .separator = p.separator,
                .map = make_document_map(p.document_map_tpl)};
  build.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
  std::ostringstream unused;
  BuildProgress progress(unused, BuildProgress::Mode::kSilent);
  build_tokens(build, progress);
  return build.from.left_out;
}

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

}  // namespace

TextInput::TextInput(const HParams& p)
    : WrappedInput(make_tokens(p, std::string(kCorpusSnapshot))), p_(p) {}

void TextInput::attach(const Infeed& infeed) {
  const fs::path snapshot = infeed.run_directory / kSnapshotName;
  const auto holds_request = [&] {
    return FlatTokensReader(snapshot, p_.split).source().starts_with(request_text(p_) + ":");
  };
  if (!fs::exists(snapshot) || (!infeed.run_begun && !holds_request())) {
    if (const std::string left_out = build_snapshot(p_, snapshot); !left_out.empty())
      remarks_ = {fmt::format("{}: {}", p_.path, left_out)};
  } else if (!holds_request()) {
    fail(
        "{} is a snapshot of different text ({}); this run needs {}. Restore the old settings or "
        "use a new --job_log_dir",
        snapshot.string(), FlatTokensReader(snapshot, p_.split).source(), request_text(p_));
  }
  input_ = make_tokens(p_, snapshot);
  input_->attach(infeed);
}

}  // namespace tessera
