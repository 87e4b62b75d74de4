// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/tokenizer.h"

#include <charconv>

#include "core/io/file.h"
#include "core/io/json.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

constexpr std::string_view kHeader = "tokenizer files 1\n";
constexpr std::uintmax_t kLargestFile = 256 << 20;

// Returns whether a definition may have this file name; names are never used as paths.
bool is_known(std::string_view name) {
  return name == "tokenizer.json" || name == "tokenizer_config.json" ||
         name == "special_tokens_map.json" || name == kModelIds || name == "vocab.json" ||
         name == "merges.txt" || name == "tokenizer.model";
}

std::string read(const filesystem::path& path) {
  std::error_code error;
  const auto size = filesystem::file_size(path, error);
  if (!error && size > kLargestFile)
    fail("{} has {} bytes; a tokenizer's files have at most {}", path.string(), size, kLargestFile);
  return read_file(path);
}

bool read_if_there(const filesystem::path& path, const std::string& name, TokenizerFiles* files) {
  if (!filesystem::is_regular_file(path)) return false;
  (*files)[name] = read(path);
  return true;
}

// Reads the start and end id of a model's configuration; from a list, the first.
void read_model_ids(const filesystem::path& directory, TokenizerFiles* files) {
  JsonLine ids;
  for (const char* member : {"bos_token_id", "eos_token_id"}) {
    for (const char* name : {"config.json", "generation_config.json"}) {
      const filesystem::path path = directory / name;
      if (!filesystem::is_regular_file(path)) continue;
      const Json config = parse_json(read(path), path.string());
      const Json* id = config.is_object() ? config.find(member) : nullptr;
      if (id != nullptr && id->is_array() && !id->as_array().empty()) id = id->as_array().data();
      if (id == nullptr || !id->is_integer()) continue;
      (*files)[kModelIds] = ids.add(member, id->as_integer()).text();
      break;
    }
  }
}

// Reads the files that name the start and end tokens, beside a tokenizer's own file.
void read_settings(const filesystem::path& directory, TokenizerFiles* files) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"})
    read_if_there(directory / name, name, files);
  read_model_ids(directory, files);
}

// Reads GPT-2's two files, under either of their names.
bool read_gpt2(const filesystem::path& directory, TokenizerFiles* files) {
  const bool is_there = (read_if_there(directory / "vocab.json", "vocab.json", files) &&
                         read_if_there(directory / "merges.txt", "merges.txt", files)) ||
                        (read_if_there(directory / "encoder.json", "vocab.json", files) &&
                         read_if_there(directory / "vocab.bpe", "merges.txt", files));
  if (is_there) read_settings(directory, files);
  return is_there;
}

bool is_unigram(const Json& file) {
  const Json* const model = file.is_object() ? file.find("model") : nullptr;
  const Json* const type = model != nullptr && model->is_object() ? model->find("type") : nullptr;
  return type != nullptr && type->is_string() && type->as_string() == "Unigram";
}

// Returns whether to read tokenizer.model instead of the tokenizer.json beside it: the JSON was
// exported from the model by Tessera, or is a Unigram model, which is not supported.
bool stands_for_model(const filesystem::path& directory, const std::string& json) {
  if (!filesystem::is_regular_file(directory / "tokenizer.model")) return false;
  return filesystem::is_regular_file(directory / "tessera_export.json") ||
         is_unigram(parse_json(json, (directory / "tokenizer.json").string()));
}

TokenizerFiles read_directory(const filesystem::path& directory) {
  TokenizerFiles files;
  if (read_if_there(directory / "tokenizer.json", "tokenizer.json", &files)) {
    if (stands_for_model(directory, files.at("tokenizer.json")))
      return {{"tokenizer.model", read(directory / "tokenizer.model")}};
    read_settings(directory, &files);
    return files;
  }
  if (read_gpt2(directory, &files)) return files;
  files.clear();
  if (read_if_there(directory / "tokenizer.model", "tokenizer.model", &files)) return files;
  fail(
      "{}: no tokenizer found; expected tokenizer.json, vocab.json with merges.txt, encoder.json "
      "with vocab.bpe, or tokenizer.model",
      directory.string());
}

}  // namespace

std::string Tokenizer::decode(const std::vector<int32_t>& ids) const {
  std::string text;
  for (const int32_t id : ids)
    if (has(id)) text += texts_[static_cast<size_t>(id)].bytes;
  return text;
}

bool Tokenizer::may_be_drawn(int32_t id) const {
  return has(id) &&
         (texts_[static_cast<size_t>(id)].kind == TokenText::Kind::kText || id == end_id_);
}

TokenizerFiles read_tokenizer_files(const filesystem::path& path) {
  if (filesystem::is_directory(path)) return read_directory(path);
  const std::string name = path.filename().string();
  TokenizerFiles files;
  if (name == "vocab.json" || name == "encoder.json" || name == "merges.txt" ||
      name == "vocab.bpe") {
    const filesystem::path directory = path.parent_path();
    if (read_gpt2(directory, &files)) return files;
    fail(
        "{}: a GPT-2 tokenizer has two files, vocab.json and merges.txt (or encoder.json and "
        "vocab.bpe); only {} was found",
        directory.empty() ? "." : directory.string(), name);
  }
  if (path.extension() == ".model") {
    files["tokenizer.model"] = read(path);
  } else if (path.extension() == ".json") {
    files["tokenizer.json"] = read(path);
    read_settings(path.parent_path(), &files);
  } else {
    fail(
        "{} is not a tokenizer: expected a SentencePiece model (*.model), a tokenizer.json, "
        "GPT-2's vocab.json, or a directory with one of them",
        path.string());
  }
  return files;
}

std::string definition_of_files(const TokenizerFiles& files) {
  std::string text(kHeader);
  for (const auto& [name, content] : files) text += fmt::format("{} {}\n", name, content.size());
  text += "\n";
  for (const auto& [name, content] : files) text += content;
  return text;
}

TokenizerFiles files_of_definition(const std::string& definition) {
  if (definition == "bytes") return {};
  std::string_view rest = definition;
  const auto broken = [] { fail("a tokenizer's definition is damaged"); };
  if (!rest.starts_with(kHeader)) broken();
  rest.remove_prefix(kHeader.size());
  std::vector<std::pair<std::string, size_t>> parts;
  while (true) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) broken();
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (line.empty()) break;
    const size_t space = line.find(' ');
    size_t size = 0;
    if (space == std::string_view::npos || !is_known(line.substr(0, space))) broken();
    const auto [stop, error] =
        std::from_chars(line.data() + space + 1, line.data() + line.size(), size);
    if (error != std::errc() || stop != line.data() + line.size()) broken();
    parts.emplace_back(line.substr(0, space), size);
  }
  TokenizerFiles files;
  for (const auto& [name, size] : parts) {
    if (size > rest.size() || !files.emplace(name, rest.substr(0, size)).second) broken();
    rest.remove_prefix(size);
  }
  if (!rest.empty() || files.empty()) broken();
  return files;
}

}  // namespace tessera
