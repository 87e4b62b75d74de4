// SPDX-License-Identifier: Apache-2.0
// SentencePiece models as tokenizer.json: against `transformers` where it is installed, against our
// own reader of such files, and against reviewed golden files.
#include "tasks/interop/hf_tokenizer.h"

#include <cstdlib>
#include <sstream>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/flat_tokens_tool/train_sentence_piece.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "inputs/tokenizers/sentence_piece.h"
#include "tasks/run/directory/run_config.h"
#include "tests/support/catch.h"
#include "tests/support/golden_text.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr const char* kTokenizer = R"({"version": "1.0",
  "added_tokens": [{"id": 3, "content": "<end>", "special": true, "single_word": false,
                    "lstrip": false, "rstrip": false, "normalized": false}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

TEST_CASE("import keeps the tokenizer with the run, and export writes it unchanged") {
  const TemporaryDirectory directory;
  fs::copy(hf_golden("llama"), directory / "hf");
  write_bytes(directory / "hf/tokenizer.json", kTokenizer);
  write_bytes(directory / "hf/tokenizer_config.json", R"({"eos_token": "<end>"})");
  const ExperimentConfig config = hf_experiment("llama");
  import_hf(config, directory / "hf", directory / "run");
  REQUIRE(read_run_tokenizer(directory / "run")->encode("ab").size() == 1);
  RunWith options;
  options.of_mode<ExportOptions>().family = "llama";
  export_hf(config, directory / "run", directory / "out", options);
  REQUIRE(read_bytes(directory / "out/tokenizer.json") == kTokenizer);
  REQUIRE(read_bytes(directory / "out/tokenizer_config.json") == R"({"eos_token": "<end>"})");
  REQUIRE_THAT(read_bytes(directory / "out/config.json"), Contains("\"eos_token_id\": 3"));
  REQUIRE_THAT(read_bytes(directory / "out/tessera_export.json"), Contains("tokenizer.json"));
}

// A tokenizer of 48 + `more` ids for a table of 48 rows; the last is that of `content`.
std::string tokenizer_of(int64_t more, const std::string& added) {
  std::string vocabulary;
  for (int64_t id = 0; id < 48 + more; ++id)
    vocabulary += fmt::format("{}\"{}{}\": {}", id == 0 ? "" : ", ", 'a', id, id);
  return fmt::format(R"({{"added_tokens": [{}], "pre_tokenizer": {{"type": "ByteLevel"}},
    "model": {{"type": "BPE", "vocab": {{{}}}, "merges": []}}}})",
                     added, vocabulary);
}

TEST_CASE("a tokenizer whose texts may have ids beyond the table of embeddings is not imported") {
  const std::string special = R"({"id": 50, "content": "<x>", "special": true})",
                    text = R"({"id": 50, "content": "<x>", "special": false})";
  struct Case {
    std::string json, settings, error;
  };
  const Case cases[] = {
      {tokenizer_of(-8, ""), "{}", "no error"},
      {tokenizer_of(0, ""), "{}", "no error"},
      {tokenizer_of(1, ""), "{}", "the tokenizer has 49 ids, but the table of embeddings has 48"},
      {tokenizer_of(0, text), "{}",
       "has 51 ids, but the table of embeddings has 48 rows, and "
       "texts may have id 50; "},
      {tokenizer_of(0, special), "{}", "no error"},
      {tokenizer_of(0, special), R"({"eos_token": "<x>"})", "texts may have id 50"},
      {tokenizer_of(0, special), R"({"bos_token": "<x>"})", "texts may have id 50"}};
  for (const Case& each : cases) {
    CAPTURE(each.json, each.settings);
    const TemporaryDirectory directory;
    fs::copy(hf_golden("llama"), directory / "hf");
    write_bytes(directory / "hf/tokenizer.json", each.json);
    write_bytes(directory / "hf/tokenizer_config.json", each.settings);
    const auto import = [&] {
      import_hf(hf_experiment("llama"), directory / "hf", directory / "run");
    };
    REQUIRE_THAT(error_of(import), Contains(each.error));
    REQUIRE(fs::exists(directory / "run") == (each.error == "no error"));
    if (each.error == "no error") REQUIRE(read_run_tokenizer(directory / "run") != nullptr);
  }
}

TEST_CASE("a tokenizer without tokenizer_config.json is exported with a default one") {
  const TemporaryDirectory directory;
  write_bytes(directory / "tokenizer.json", kTokenizer);
  const HfTokenizer tokenizer = hf_tokenizer_of(*make_tokenizer(directory.path().string()));
  REQUIRE(tokenizer.files.at("tokenizer.json") == kTokenizer);
  REQUIRE_THAT(tokenizer.files.at("tokenizer_config.json"),
               Contains("\"tokenizer_class\": \"PreTrainedTokenizerFast\""));
}

TEST_CASE("a missing tokenizer is reported and is not an error") {
  const TemporaryDirectory directory;
  const HfTokenizer bytes = hf_tokenizer_of(*make_tokenizer("bytes"));
  REQUIRE(bytes.files.empty());
  REQUIRE_THAT(bytes.remark, Contains("the tokenizer 'bytes' has no file"));
  ExperimentConfig config = hf_experiment("llama");
  REQUIRE_THAT(hf_tokenizer_of(config, directory.path()).remark, Contains("has no tokenizer"));
  config.input =
      FlatTokensInput::HParams{.path = "/nowhere/tokens.h5", .global_batch_size = 1, .seq_len = 4};
  REQUIRE_THAT(hf_tokenizer_of(config, directory.path()).remark,
               Contains("cannot be opened") && Contains("/nowhere/tokens.h5"));
}

namespace fs = std::filesystem;
using Catch::Contains;

const std::string kSource = TESSERA_SOURCE_DIR;
const std::string kModels = kSource + "/tests/golden/tokenizers/";

std::string model_piece(const std::string& text, float score, int type = 1) {
  std::string piece = "\x0a" + std::string(1, static_cast<char>(text.size())) + text + "\x15";
  piece.append(reinterpret_cast<const char*>(&score), sizeof(score));
  piece += "\x18";
  piece += static_cast<char>(type);
  return "\x0a" + std::string(1, static_cast<char>(piece.size())) + piece;
}

std::string numbers(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : ", ") + std::to_string(id);
  return "[" + text + "]";
}

// Lines of our documentation, and the edge cases of the tokenizer goldens.
std::vector<std::string> texts() {
  std::vector<std::string> all;
  for (const char* page : {"/docs/formats.md", "/docs/graph.md", "/README.md"}) {
    std::istringstream lines(read_file(kSource + page));
    for (std::string line; std::getline(lines, line);) all.push_back(line);
  }
  const std::string path = kModels + "bpe.golden.json";
  const Json golden = parse_json(read_file(path), path);
  for (const Json& each : golden.as_array())
    if (const Json* text = each.find("text")) all.push_back(text->as_string());
  for (const char* text :
       {"<s>one</s> two <s> three", "<unk> <0x0A> <0x41>", "  two  spaces  ", "\ttab\n\nlines\n",
        "\xe2\x96\x81 mark \xe2\x96\x81",
        "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82, \xd0\xbc\xd0\xb8\xd1\x80",
        "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xe6\x96\x87",
        "\xd8\xb3\xd9\x84\xd8\xa7\xd9\x85 \xf0\x9f\x98\x80", " ", "   ", "", "<user>",
        "a<user> b <user><user>"})
    all.emplace_back(text);
  return all;
}

// Writes the exported files of a model, and our ids for the texts.
void write_export(const std::string& model, const fs::path& folder) {
  write_bytes(folder / "source.model", model);
  const auto tokenizer = make_tokenizer((folder / "source.model").string());
  const HfTokenizer written = hf_tokenizer_of(*tokenizer);
  REQUIRE(written.remark.empty());
  for (const auto& [name, content] : written.files) write_bytes(folder / name, content);
  fs::copy(hf_golden("llama") / "config.json", folder / "config.json");
  std::string cases;
  for (const std::string& text : texts()) {
    const std::vector<int32_t> ids = tokenizer->encode(text);
    cases += JsonLine()
                 .add("text", text)
                 .add_raw("ids", numbers(ids))
                 .add_raw("with_special", numbers(tokenizer->encode_with_special(text)))
                 .add("decoded", tokenizer->decode(ids))
                 .text() +
             ",\n";
  }
  write_bytes(folder / "texts.json", "[" + cases.substr(0, cases.size() - 2) + "]");
}

// Trains a model on a text that does not change. A unigram model of it has at most 834 tokens. The
// names of special tokens consist of characters with tokens of their own: `tokenizers` finds a
// special token in the text, as SentencePiece never does, where the characters are unknown.
std::string trained(SentencePieceModel kind, const fs::path& output) {
  const fs::path characters = output.parent_path() / "characters.txt";
  std::string lines;  // Rare characters get no token, special tokens are cut out of the text.
  for (int line = 0; line < 40; ++line) lines += "< k 0 / x A > ";
  write_bytes(characters, lines);
  train_sentence_piece({kSource + "/LICENSE", characters.string()},
                       {.model = kind, .vocab_size = 800}, output);
  return read_file(output);
}

TEST_CASE("transformers gives the same ids for an exported SentencePiece tokenizer") {
  const std::string python = python_with("transformers");
  if (python.empty()) return skip_test("no Python with transformers");
  const TemporaryDirectory directory;
  const std::string unigram = read_file(kModels + "unigram.model");
  const std::string bpe = read_file(kModels + "bpe.model");
  const std::string plain = "\x1a\x04\x18";  // Followed by two flags of a NormalizerSpec.
  write_export(unigram, directory / "unigram");
  write_export(bpe, directory / "bpe");
  write_export(unigram + plain + std::string("\0\x20\1", 3), directory / "unigram_no_space");
  write_export(unigram + plain + std::string("\1\x20\0", 3), directory / "unigram_all_spaces");
  write_export(bpe + plain + std::string("\0\x20\0", 3), directory / "bpe_no_space");
  write_export(bpe + plain + std::string("\1\x20\1", 3), directory / "bpe_fewer_spaces");
  write_export(trained(SentencePieceModel::kUnigram, directory / "a.model"),
               directory / "own_unigram");
  write_export(trained(SentencePieceModel::kBpe, directory / "b.model"), directory / "own_bpe");
  std::string command =
      "HF_HUB_OFFLINE=1 " + python + " " + kSource + "/tests/golden/hf_sentence_piece.py";
  for (const char* name : {"unigram", "bpe", "unigram_no_space", "unigram_all_spaces",
                           "bpe_no_space", "bpe_fewer_spaces", "own_unigram", "own_bpe"})
    command += " " + (directory / name).string();
  const int code = std::system((command + " > " + (directory / "said").string() + " 2>&1").c_str());
  INFO(read_bytes(directory / "said"));
  REQUIRE(code == 0);
}

// Our reader of tokenizer.json supports BPE with everything that these two models need.
TEST_CASE("an exported BPE model gives the same ids in our reader of tokenizer.json") {
  const TemporaryDirectory directory;
  for (const std::string& model : {read_file(kModels + "bpe.model"),
                                   trained(SentencePieceModel::kBpe, directory / "b.model")}) {
    const HfSentencePiece made = hf_sentence_piece(model, "t.model");
    REQUIRE(made.reason.empty());
    const auto exported = tokenizer_of_files("t", {{"tokenizer.json", made.json}});
    const auto own = make_sentence_piece_tokenizer("t", {{"tokenizer.model", model}});
    for (const std::string& text : texts()) {
      INFO(text);
      REQUIRE(exported->encode(text) == own->encode(text));
      REQUIRE(exported->encode_with_special(text) == own->encode_with_special(text));
    }
  }
}

// A few pieces of each type, with scores that are exact in f32.
std::string small_model() {
  std::string model = model_piece("<unk>", 0, 2) + model_piece("<s>", 0, 3) +
                      model_piece("</s>", 0, 3) + model_piece("a\"b", 0, 4);
  model += model_piece("\xe2\x96\x81\x61", -1) + model_piece("ab", -1.5) + model_piece("aba", -2.5);
  for (const char* character : {"\xe2\x96\x81", "a", "b", "\\"})
    model += model_piece(character, -4 - static_cast<float>(character[0] & 3));
  return model;
}

void require_golden(const std::string& name, const std::string& text) {
  REQUIRE(golden_difference("sentence_piece_export/" + name, text).empty());
}

TEST_CASE("the exported files of a SentencePiece model match the goldens") {
  const std::string unigram = small_model();
  const std::string bpe = unigram + std::string("\x12\x02\x18\x02", 4);
  const std::string loose = unigram + std::string("\x1a\x04\x18\x00\x20\x00", 6);
  require_golden("unigram.json", hf_sentence_piece(unigram, "t").json);
  require_golden("unigram_loose.json", hf_sentence_piece(loose, "t").json);
  require_golden("bpe.json", hf_sentence_piece(bpe, "t").json);
  const auto tokenizer = make_sentence_piece_tokenizer("t", {{"tokenizer.model", unigram}});
  require_golden("tokenizer_config.json",
                 hf_tokenizer_of(*tokenizer).files.at("tokenizer_config.json"));
}

TEST_CASE("a SentencePiece model that tokenizer.json cannot express is not exported silently") {
  const auto reason = [](const std::string& more) {
    const std::string model = small_model() + more;
    const HfSentencePiece made = hf_sentence_piece(model, "t");
    REQUIRE(made.json.empty());
    return made.reason;
  };
  const std::string bpe("\x12\x02\x18\x02", 4);
  REQUIRE_THAT(reason(std::string("\x12\x02\x18\x03", 4)), Contains("a model of whole words"));
  REQUIRE_THAT(reason(std::string("\x1a\x02\x28\x00", 4)), Contains("escape_whitespaces"));
  REQUIRE_THAT(reason(std::string("\x12\x03\xc0\x01\x01", 5)),
               Contains("treat_whitespace_as_suffix"));
  REQUIRE_THAT(reason(model_piece("ac", -3)), Contains("the character 'c'"));
  REQUIRE_THAT(reason(bpe + model_piece("bb", -1)), Contains("equal scores"));
  REQUIRE_THAT(reason(bpe + model_piece("bb", -1.25, 5)), Contains("'bb' is used only in merges"));
  REQUIRE_THAT(reason(bpe + model_piece("bba\\", -1.25)), Contains("do not produce its piece"));
  const auto words = make_sentence_piece_tokenizer(
      "w.model", {{"tokenizer.model", small_model() + std::string("\x12\x02\x18\x03", 4)}});
  const HfTokenizer written = hf_tokenizer_of(*words);
  REQUIRE(!written.files.contains("tokenizer.json"));
  REQUIRE_THAT(written.remark,
               Contains("but no tokenizer.json") && Contains("a model of whole words"));
}

TEST_CASE("an exported directory is read by its SentencePiece model") {
  const TemporaryDirectory directory;
  for (const char* name : {"unigram.model", "bpe.model"}) {
    const auto own = make_tokenizer(kModels + name);
    const fs::path folder = directory / name;
    write_bytes(folder / "tessera_export.json", "{}");
    for (const auto& [file, content] : hf_tokenizer_of(*own).files)
      write_bytes(folder / file, content);
    REQUIRE(make_tokenizer(folder.string())->fingerprint() == own->fingerprint());
  }
  // In other directories the model is used if the kind of tokenizer.json is not supported.
  fs::remove(directory / "unigram.model/tessera_export.json");
  REQUIRE(make_tokenizer((directory / "unigram.model").string())->fingerprint() ==
          make_tokenizer(kModels + "unigram.model")->fingerprint());
}

}  // namespace

}  // namespace tessera
