// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/hf_tokenizer.h"

#include "core/base/error.h"
#include "core/io/json.h"
#include "inputs/tokenizers/tokenizer.h"
#include "tasks/interop/hf_sentence_piece.h"
#include "tasks/run_directory/run_tokenizer.h"

namespace tessera {
namespace {

constexpr const char* kSettings = "tokenizer_config.json";

// The name of the special token with this id, or "".
std::string name_of(const Tokenizer& tokenizer, int64_t id) {
  for (const std::string& name : tokenizer.special_tokens())
    if (tokenizer.id_of(name) == id) return name;
  return "";
}

// Without settings transformers would assume the tokenizer class of the first release.
std::string settings_of(const Tokenizer& tokenizer, const HfSpecialIds& special) {
  JsonLine line;
  line.add("tokenizer_class", "PreTrainedTokenizerFast");
  line.add_raw("clean_up_tokenization_spaces", "false");
  const auto add = [&](std::string_view key, int64_t id) {
    if (const std::string name = name_of(tokenizer, id); !name.empty()) line.add(key, name);
  };
  add("bos_token", special.begin);
  add("eos_token", special.end);
  return line.text() + "\n";
}

// transformers ignores tokenizer.model; other programs read it.
void add_json_of_sentence_piece(const std::string& name, HfTokenizer* result) {
  const auto model = result->files.find("tokenizer.model");
  if (model == result->files.end()) return;
  HfSentencePiece made = hf_sentence_piece(model->second, name);
  if (made.json.empty()) {
    result->remark = fmt::format(
        "no tokenizer.json is written along, only tokenizer.model, which transformers reads "
        "otherwise or not at all: {}, of which the library tokenizers cannot give the ids",
        made.reason);
  } else {
    result->files["tokenizer.json"] = std::move(made.json);
  }
}

}  // namespace

HfTokenizer hf_tokenizer_of(const Tokenizer& tokenizer) {
  HfTokenizer result;
  result.files = files_of_definition(tokenizer.definition());
  if (const std::optional<int32_t> end = tokenizer.end_id()) result.special.end = *end;
  const int32_t start = tokenizer.start_id();
  if (!name_of(tokenizer, start).empty()) result.special.begin = start;
  add_json_of_sentence_piece(tokenizer.name(), &result);
  if (result.files.empty()) {
    result.remark =
        fmt::format("the tokenizer '{}' is no file, so none is written along", tokenizer.name());
  } else if (result.files.contains("tokenizer.json") && !result.files.contains(kSettings)) {
    result.files[kSettings] = settings_of(tokenizer, result.special);
  }
  return result;
}

HfTokenizer hf_tokenizer_of(const ExperimentConfig& experiment,
                            const std::filesystem::path& run_directory) {
  if (const auto kept = read_run_tokenizer(run_directory)) return hf_tokenizer_of(*kept);
  try {
    const std::unique_ptr<BaseInput> input = experiment.input.instantiate();
    if (input->tokenizer() == nullptr) input->attach({.run_directory = run_directory});
    if (const Tokenizer* tokenizer = input->tokenizer()) return hf_tokenizer_of(*tokenizer);
  } catch (const Error& error) {
    return {.remark = fmt::format("no tokenizer is written along, since the run's input cannot be "
                                  "opened: {}",
                                  error.what())};
  }
  return {.remark = "the run's input has no tokenizer, so none is written along"};
}

}  // namespace tessera
