// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizer.h"

#include <filesystem>

#include "core/base/error.h"
#include "inputs/tokenizers/bytes.h"
#include "inputs/tokenizers/hugging_face.h"
#include "inputs/tokenizers/sentence_piece.h"
#include "inputs/tokenizers/tokenizer_files.h"

namespace tessera {
namespace {

std::unique_ptr<Tokenizer> tokenizer_of_files(const std::string& name,
                                              const TokenizerFiles& files) {
  if (files.contains("tokenizer.json")) return make_hugging_face_tokenizer(name, files);
  if (files.contains("vocab.json") && files.contains("merges.txt"))
    return make_gpt2_tokenizer(name, files);
  if (files.contains("tokenizer.model")) return make_sentence_piece_tokenizer(name, files);
  fail("the definition of tokenizer '{}' is damaged", name);
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return make_byte_tokenizer();
  if (!std::filesystem::exists(name))
    fail("no tokenizer '{}': it is neither bytes nor a file or directory{}", name,
         did_you_mean(name, {"bytes"}));
  return tokenizer_of_files(name, read_tokenizer_files(name));
}

std::unique_ptr<Tokenizer> tokenizer_of_definition(const std::string& name,
                                                   const std::string& definition) {
  if (definition == "bytes") return make_byte_tokenizer();
  const ErrorPrefix prefix(name);
  return tokenizer_of_files(name, files_of_definition(definition));
}

}  // namespace tessera
