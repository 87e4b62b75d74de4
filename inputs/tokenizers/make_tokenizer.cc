// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/make_tokenizer.h"

#include <filesystem>
#include <limits>
#include <set>
#include <sstream>
#include <string_view>

#include "core/base/error.h"
#include "core/io/json.h"
#include "core/io/storage/storage.h"
#include "inputs/tokenizers/bpe_tokenizer.h"
#include "inputs/tokenizers/normalizer.h"
#include "inputs/tokenizers/sentence_piece.h"

namespace tessera {
namespace {

// The tokenizer of bytes: byte b is id b + 1; 0 is reserved.
class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    name_ = definition_ = "bytes";
    fingerprint_ = "bytes-plus-1";
    texts_.resize(1);
    for (int byte = 0; byte < 256; ++byte)
      texts_.push_back({TokenText::Kind::kText, std::string(1, static_cast<char>(byte))});
  }

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>* ids) const override {
    ids->reserve(ids->size() + text.size());
    for (const char c : text) ids->push_back(static_cast<unsigned char>(c) + 1);
  }
};

// Hugging Face's tokenizer.json.

int32_t id_at(const Json& json) {
  const int64_t id = json.as_integer();
  if (id < 0 || id >= std::numeric_limits<int32_t>::max())
    fail("{} is {}, expected an id of 0 or more", json.where(), id);
  return static_cast<int32_t>(id);
}

const Json& member(const Json& json, std::string_view name) {
  static const Json kNull;
  const Json* found = json.find(name);
  return found == nullptr ? kNull : *found;
}

std::string text_of(const Json& json) { return json.is_null() ? "" : json.as_string(); }

void read_vocabulary(const Json& json, BpeDefinition* model) {
  for (const auto& [token, id] : json.as_object()) model->vocabulary.emplace_back(token, id_at(id));
}

std::pair<std::string, std::string> split_merge(std::string_view text, const std::string& where) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
    fail("{} is '{}', expected two tokens with a space between", where, text);
  return {std::string(text.substr(0, space)), std::string(text.substr(space + 1))};
}

// Parses "a b", or ["a", "b"] for tokens with spaces.
std::pair<std::string, std::string> merge_of(const Json& json) {
  if (json.is_array()) {
    if (json.as_array().size() != 2)
      fail("{} has {} tokens, expected 2", json.where(), json.as_array().size());
    return {json.as_array()[0].as_string(), json.as_array()[1].as_string()};
  }
  return split_merge(json.as_string(), json.where());
}

void read_merges(const Json& json, BpeDefinition* model) {
  for (const Json& each : json.as_array()) {
    if (each.is_string() && each.as_string().starts_with("#version")) continue;
    model->merges.push_back(merge_of(each));
  }
}

BpeDefinition read_model(const Json& json, bool is_byte_level) {
  const Json& type = member(json, "type");
  if (!type.is_null() && type.as_string() != "BPE")
    fail("{} is '{}', only BPE is supported{}", type.where(), type.as_string(),
         type.as_string() == "Unigram" ? "; if it has a SentencePiece model (*.model), use that"
                                       : "");
  const Json& dropout = member(json, "dropout");
  if (!dropout.is_null() && dropout.as_number() != 0)
    fail("{} is {}: BPE dropout is not supported", dropout.where(), dropout.as_number());
  BpeDefinition model;
  model.is_byte_level = is_byte_level;
  model.fuses_unknown = flag_of(json, "fuse_unk", false);
  model.has_byte_fallback = flag_of(json, "byte_fallback", false);
  model.ignores_merges = flag_of(json, "ignore_merges", false);
  model.continuing_prefix = text_of(member(json, "continuing_subword_prefix"));
  model.end_suffix = text_of(member(json, "end_of_word_suffix"));
  const Json& unknown = member(json, "unk_token");
  if (!unknown.is_null()) model.unknown_token = unknown.as_string();
  read_vocabulary(json.at("vocab"), &model);
  read_merges(json.at("merges"), &model);
  return model;
}

std::vector<AddedToken> read_added(const Json& json) {
  std::vector<AddedToken> added;
  std::set<std::string> names;
  if (json.is_null()) return added;
  for (const Json& each : json.as_array()) {
    AddedToken token;
    token.content = each.at("content").as_string();
    token.id = id_at(each.at("id"));
    token.is_special = flag_of(each, "special", false);
    token.is_single_word = flag_of(each, "single_word", false);
    token.takes_left_space = flag_of(each, "lstrip", false);
    token.takes_right_space = flag_of(each, "rstrip", false);
    token.is_normalized = flag_of(each, "normalized", !token.is_special);
    if (!names.insert(token.content).second)
      fail("{}: the added token '{}' is repeated", each.where(), token.content);
    added.push_back(std::move(token));
  }
  return added;
}

// The files beside a tokenizer's own file; null for absent ones.
struct Settings {
  std::vector<Json> names;  // Files with names of tokens, by precedence.
  Json ids;                 // kModelIds
};

Settings read_settings(const std::string& name, const TokenizerFiles& files) {
  const auto read = [&](const char* file) {
    const auto found = files.find(file);
    return found == files.end() ? Json() : parse_json(found->second, name + ": " + file);
  };
  return {{read("tokenizer_config.json"), read("special_tokens_map.json")}, read(kModelIds)};
}

// Returns a token's name, as a string or an object; "" if no file has it.
std::string configured_token(const Settings& settings, std::string_view role) {
  for (const Json& file : settings.names) {
    const Json* token = file.is_object() ? file.find(role) : nullptr;
    if (token != nullptr && token->is_object()) token = token->find("content");
    if (token != nullptr && token->is_string() && !token->as_string().empty())
      return token->as_string();
  }
  return "";
}

// Returns the token that the post-processor prepends; "" if none.
std::string processed_start(const Json& json) {
  if (!json.is_object()) return "";
  const Json& processors = member(json, "processors");
  if (processors.is_array()) {
    for (const Json& each : processors.as_array())
      if (std::string name = processed_start(each); !name.empty()) return name;
    return "";
  }
  const Json& single = member(json, "single");
  if (!single.is_array() || single.as_array().empty() || !single.as_array()[0].is_object())
    return "";
  const Json& special = member(single.as_array()[0], "SpecialToken");
  return special.is_object() ? text_of(member(special, "id")) : "";
}

// Finds special tokens only: "</s>" in an ordinary vocabulary ends nothing.
std::optional<int32_t> first_special(const std::vector<AddedToken>& added,
                                     const std::vector<std::string>& names) {
  for (const std::string& name : names)
    for (const AddedToken& token : added)
      if (token.is_special && token.content == name) return token.id;
  return std::nullopt;
}

// Returns the id of the first token for which `is_it(name, id)`.
template <typename IsIt>
std::optional<int32_t> find_token(const BpeParts& parts, const IsIt& is_it) {
  for (const AddedToken& token : parts.added)
    if (is_it(token.content, token.id)) return token.id;
  for (const auto& [token, id] : parts.model.vocabulary)
    if (is_it(token, id)) return id;
  return std::nullopt;
}

std::optional<int32_t> id_of_name(const BpeParts& parts, const std::string& name) {
  return find_token(parts, [&](const std::string& token, int32_t) { return token == name; });
}

// Returns a token that the settings name, or whose id the model's configuration has.
std::optional<int32_t> configured_id(const Settings& settings, const std::string& role,
                                     const BpeParts& parts) {
  if (const std::string name = configured_token(settings, role); !name.empty())
    if (const auto id = id_of_name(parts, name)) return id;
  const Json* id = settings.ids.is_object() ? settings.ids.find(role + "_id") : nullptr;
  if (id == nullptr) return std::nullopt;
  return find_token(
      parts, [&](const std::string&, int32_t token_id) { return token_id == id->as_integer(); });
}

void choose_start_and_end(const Settings& settings, const Json& processor, BpeParts* parts) {
  parts->end_id = configured_id(settings, "eos_token", *parts);
  if (!parts->end_id)
    parts->end_id = first_special(parts->added, {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                                 "<eos>", "<EOT>", "<|eot_id|>", "<|im_end|>"});
  parts->start_id = configured_id(settings, "bos_token", *parts);
  // In GPT-2, "<|endoftext|>" both ends documents and precedes each.
  if (!parts->start_id)
    parts->start_id =
        first_special(parts->added, {processed_start(processor), "<|begin_of_text|>",
                                     "<|startoftext|>", "<s>", "<bos>", "<BOS>", "<|endoftext|>"});
}

// Adds the special tokens of a vocabulary without a list of them: those that the settings name.
// Without settings, "<s>" and "</s>" are RoBERTa's, whose vocabulary has an unused "<|endoftext|>".
void add_special_tokens(const Settings& settings, BpeParts* parts) {
  std::set<std::string> names = {"<|endoftext|>"};
  for (const char* role :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    names.insert(configured_token(settings, role));
  if (names.size() <= 2 && id_of_name(*parts, "<s>") && id_of_name(*parts, "</s>"))
    names = {"<s>", "</s>", "<pad>", "<unk>", "<mask>"};
  for (const auto& [token, id] : parts->model.vocabulary)
    if (names.contains(token))
      parts->added.push_back({.content = token, .id = id, .is_special = true});
}

void add_decoder(const Json& json, TokenDecoder* decoder) {
  if (json.is_null()) return;
  const auto not_empty = [&](const Json& text) {
    if (text.as_string().empty()) fail("{} is empty", text.where());
    return text.as_string();
  };
  const std::string& type = json.at("type").as_string();
  if (type == "Sequence") {
    for (const Json& each : json.at("decoders").as_array()) add_decoder(each, decoder);
  } else if (type == "ByteLevel" || type == "Fuse") {
    // Byte tokens are concatenated anyway.
  } else if (type == "ByteFallback") {
    decoder->has_byte_tokens = true;
  } else if (type == "Replace") {
    decoder->replacements.emplace_back(not_empty(json.at("pattern").at("String")),
                                       json.at("content").as_string());
  } else if (type == "Metaspace") {
    decoder->replacements.emplace_back(not_empty(json.at("replacement")), " ");
    const Json* scheme = json.find("prepend_scheme");
    const bool prepends = scheme == nullptr ? flag_of(json, "add_prefix_space", true)
                                            : scheme->as_string() != "never";
    if (prepends) decoder->strip_left = 1;
  } else if (type == "BPEDecoder") {
    decoder->end_suffix = json.at("suffix").as_string();
    decoder->strip_right = 1;
  } else if (type == "Strip") {
    const std::string& content = json.at("content").as_string();
    if (content.size() != 1)
      fail("{} is '{}', expected one ASCII character", json.at("content").where(), content);
    decoder->strip = content[0];
    decoder->strip_left = json.at("start").as_integer();
    decoder->strip_right = json.at("stop").as_integer();
  } else {
    fail(
        "{}: a decoder of type '{}' is not supported; supported are: ByteLevel, ByteFallback, "
        "Fuse, Metaspace, Replace, Strip, BPEDecoder, Sequence",
        json.where(), type);
  }
}

std::unique_ptr<Tokenizer> make_hugging_face_tokenizer(const std::string& name,
                                                       const TokenizerFiles& files) {
  const Json json = parse_json(files.at("tokenizer.json"), name);
  BpeParts parts;
  parts.name = name;
  parts.definition = definition_of_files(files);
  parts.pre_tokenizer = std::make_unique<PreTokenizer>(member(json, "pre_tokenizer"));
  parts.normalizer = make_normalizer(member(json, "normalizer"));
  parts.model = read_model(json.at("model"), parts.pre_tokenizer->is_byte_level());
  parts.added = read_added(member(json, "added_tokens"));
  if (!parts.model.is_byte_level) add_decoder(member(json, "decoder"), &parts.decoder);
  choose_start_and_end(read_settings(name, files), member(json, "post_processor"), &parts);
  return make_bpe_tokenizer(std::move(parts));
}

// GPT-2's vocab.json and merges.txt.

// Reads lines "a b", after a version line.
void read_merges_text(const std::string& text, const std::string& name, BpeDefinition* model) {
  std::istringstream lines(text);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with("#version")) continue;
    model->merges.push_back(split_merge(line, fmt::format("{}: merges.txt:{}", name, number)));
  }
}

std::unique_ptr<Tokenizer> make_gpt2_tokenizer(const std::string& name,
                                               const TokenizerFiles& files) {
  BpeParts parts;
  parts.name = name;
  parts.definition = definition_of_files(files);
  parts.pre_tokenizer = std::make_unique<PreTokenizer>(
      std::vector{make_scan_step(WordPattern::kGpt2)}, /*is_byte_level=*/true);
  parts.model.is_byte_level = true;
  read_vocabulary(parse_json(files.at("vocab.json"), name), &parts.model);
  read_merges_text(files.at("merges.txt"), name, &parts.model);
  const Settings settings = read_settings(name, files);
  add_special_tokens(settings, &parts);
  choose_start_and_end(settings, Json(), &parts);
  return make_bpe_tokenizer(std::move(parts));
}

// Whether read_tokenizer_files() may read this file of a repository.
bool is_of_tokenizer(std::string_view name) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  return name.find('/') == std::string_view::npos &&
         (ends(".json") || ends(".txt") || ends(".bpe") || ends(".model"));
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of_files(const std::string& name,
                                              const TokenizerFiles& files) {
  if (files.contains("tokenizer.json")) return make_hugging_face_tokenizer(name, files);
  if (files.contains("vocab.json") && files.contains("merges.txt"))
    return make_gpt2_tokenizer(name, files);
  if (files.contains("tokenizer.model")) return make_sentence_piece_tokenizer(name, files);
  fail("the definition of tokenizer '{}' is damaged", name);
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  const std::string path = path_or_url(name, "tokenizer");
  const std::filesystem::path local = local_copy(path, is_of_tokenizer);
  if (!std::filesystem::exists(local))
    fail("unknown tokenizer '{}': expected 'bytes', a file or a directory{}", name,
         did_you_mean(name, {"bytes"}));
  return tokenizer_of_files(path, read_tokenizer_files(local));
}

std::unique_ptr<Tokenizer> tokenizer_of_definition(const std::string& name,
                                                   const std::string& definition) {
  if (definition == "bytes") return std::make_unique<ByteTokenizer>();
  const ErrorPrefix prefix(name);
  return tokenizer_of_files(name, files_of_definition(definition));
}

std::string special_name(const Tokenizer& tokenizer, int64_t id) {
  for (const std::string& name : tokenizer.special_tokens())
    if (tokenizer.id_of(name) == id) return name;
  return "";
}

std::string tokenizer_config_json(const Tokenizer& tokenizer) {
  JsonLine line;
  line.add("tokenizer_class", "PreTrainedTokenizerFast");
  line.add_raw("clean_up_tokenization_spaces", "false");
  const auto add = [&](std::string_view key, int64_t id) {
    if (const std::string name = special_name(tokenizer, id); !name.empty()) line.add(key, name);
  };
  add("bos_token", tokenizer.start_id());
  add("eos_token", tokenizer.end_id().value_or(-1));
  return line.text() + "\n";
}

}  // namespace tessera
