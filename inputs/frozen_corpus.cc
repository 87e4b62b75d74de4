// SPDX-License-Identifier: Apache-2.0
#include "inputs/frozen_corpus.h"

#include <algorithm>
#include <sstream>
#include <thread>

#include "core/base/error.h"
#include "inputs/building/token_build.h"
#include "inputs/text_corpus.h"
#include "inputs/tokenizer.h"

namespace tessera {
namespace {

Corpus own_sources(double validation_fraction) {
  std::filesystem::path root;
  const auto files = own_text_files(&root);
  if (files.empty())
    fail(
        "there are no sources of Tessera beside this program to train on; name a text file or a "
        "folder with --set input.path=PATH");
  return split_corpus(files, root, validation_fraction);
}

void freeze_files(const CorpusRequest& request, const Tokenizer& tokenizer,
                  const std::filesystem::path& output) {
  TokenBuild build;
  build.from =
      find_build_inputs({request.path}, {.validation_fraction = request.validation_fraction,
                                         .texts_are_parted = !request.separator.empty()});
  for (const BuildInput& input : build.from.inputs)
    if (input.kind == SourceKind::kTokens)
      fail("{} holds tokens, not text; make a token file of it with 'flat_tokens build'",
           input.path.string());
  build.from.files = fmt::format("{}: {}", request_text(request), build.from.files);
  build.output = output;
  build.tokenizer = &tokenizer;
  build.identity = identity_of(tokenizer);
  build.document_end = tokenizer.end_id();
  build.validation_fraction = request.validation_fraction;
  // Bytes need not be text; other tokenizers would put other characters in their place.
  build.read = {.text_field = request.text_field,
                .require_utf8 = request.tokenizer != "bytes",
                .separator = request.separator};
  build.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
  std::ostringstream unseen;
  BuildProgress progress(unseen, BuildProgress::Mode::kSilent);
  build_tokens(build, progress);
}

}  // namespace

std::string request_text(const CorpusRequest& request) {
  const CorpusRequest usual;
  std::string text = request.path.empty()
                         ? "Tessera's own sources"
                         : std::filesystem::absolute(request.path).lexically_normal().string();
  text += fmt::format(", {:g} held out", request.validation_fraction);
  if (request.tokenizer != usual.tokenizer)
    text += fmt::format(", tokenizer {}", request.tokenizer);
  if (request.text_field != usual.text_field)
    text += fmt::format(", field '{}'", request.text_field);
  if (request.separator != usual.separator)
    text += fmt::format(", parted by '{}'", request.separator);
  return text;
}

void freeze_corpus(const CorpusRequest& request, const std::filesystem::path& output) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(request.tokenizer);
  if (!request.path.empty()) return freeze_files(request, *tokenizer, output);
  Corpus corpus = own_sources(request.validation_fraction);
  corpus.description = fmt::format("{}: {}", request_text(request), corpus.description);
  build_flat_tokens(corpus, *tokenizer, output);
}

}  // namespace tessera
