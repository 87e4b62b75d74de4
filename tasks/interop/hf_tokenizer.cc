// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/hf_tokenizer.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/json.h"
#include "inputs/checked_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "inputs/tokenizers/sentence_piece_model.h"
#include "inputs/tokenizers/unicode.h"
#include "tasks/run/directory/run_config.h"

namespace tessera {
namespace {

constexpr const char* kSettings = "tokenizer_config.json";

// transformers ignores tokenizer.model; other programs read it.
void add_json_of_sentence_piece(const std::string& name, HfTokenizer* result) {
  const auto model = result->files.find("tokenizer.model");
  if (model == result->files.end()) return;
  HfSentencePiece made = hf_sentence_piece(model->second, name);
  if (made.json.empty()) {
    result->remark = fmt::format(
        "the export has tokenizer.model, which transformers reads differently or not at all, but "
        "no tokenizer.json: the library tokenizers cannot reproduce the ids, because {}",
        made.reason);
  } else {
    result->files["tokenizer.json"] = std::move(made.json);
  }
}

using ModelKind = SentencePieceFile::Kind;
using PieceType = SentencePieceFile::Type;
using Piece = SentencePieceFile::Piece;

// `tokenizers` matches every entry of a unigram vocabulary in the text, also those that
// SentencePiece never matches ("<s>", "<0x0A>"). With so low a score they are never chosen.
constexpr double kNeverFound = -1e6;

std::string step(std::string_view type) { return json_object({{"type", type}}); }

std::string sequence(std::string_view members, const std::vector<std::string>& steps) {
  if (steps.empty()) return "null";
  return json_object({{"type", "Sequence"}, {members, RawJson{json_list(steps)}}});
}

std::string replace(std::string_view kind, std::string_view pattern, std::string_view content) {
  return json_object({{"type", "Replace"},
                      {"pattern", RawJson{json_object({{kind, pattern}})}},
                      {"content", content}});
}

std::string normalizer_of(const SentencePieceFile& file) {
  std::vector<std::string> steps;
  const std::string mark(kSpaceMark);
  if (!file.normalization.empty()) {
    // Precompiled treats the two as one character and drops the second.
    const SentencePieceTable table(file.normalization);
    const auto [length, text] = table.longest("\r\n");
    if (length == 1)
      steps.push_back(
          replace("String", "\r\n", std::string(text) + std::string(table.longest("\n").second)));
    steps.push_back(json_object(
        {{"type", "Precompiled"}, {"precompiled_charsmap", base64(file.normalization)}}));
  }
  if (file.adds_space) steps.push_back(json_object({{"type", "Prepend"}, {"prepend", mark}}));
  if (file.removes_extra_spaces) {
    const std::string before = file.adds_space ? mark : "";
    steps.push_back(replace("Regex", "\\A" + before + " +", before));
    steps.push_back(replace("Regex", " {2,}", " "));
  }
  steps.push_back(replace("String", " ", mark));
  if (file.removes_extra_spaces) steps.push_back(replace("Regex", mark + "+\\z", ""));
  return sequence("normalizers", steps);
}

std::string decoder_of(const SentencePieceFile& file) {
  std::vector<std::string> steps;
  for (const Piece& piece : file.pieces)
    if (piece.type == PieceType::kUnknown)
      steps.push_back(replace("String", piece.text, file.unknown_text));
  steps.push_back(replace("String", kSpaceMark, " "));
  steps.push_back(step("ByteFallback"));
  steps.push_back(step("Fuse"));
  if (file.adds_space)
    steps.push_back(json_object({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}));
  return sequence("decoders", steps);
}

std::string control_tokens(const SentencePieceFile& file) {
  std::vector<std::string> tokens;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    if (file.pieces[id].type != PieceType::kControl) continue;
    JsonLine token;
    token.add("id", static_cast<int64_t>(id)).add("content", file.pieces[id].text);
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"})
      token.add_raw(flag, "false");
    tokens.push_back(token.add_raw("special", "true").text());
  }
  return json_list(tokens);
}

std::string unigram_model(const SentencePieceFile& file) {
  float best = 0;
  bool is_first = true;
  for (const Piece& piece : file.pieces) {
    if (piece.type != PieceType::kNormal) continue;
    best = is_first ? piece.score : std::max(best, piece.score);
    is_first = false;
  }
  JsonLine model;
  model.add("type", "Unigram");
  std::vector<std::string> entries;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const Piece& piece = file.pieces[id];
    double score = kNeverFound;
    if (piece.type == PieceType::kNormal) score = piece.score;
    // The score that SentencePiece gives them, so that they win.
    if (piece.type == PieceType::kUserDefined)
      score = static_cast<double>(static_cast<float>(piece.text.size()) * best) - 0.1;
    if (piece.type == PieceType::kUnknown) model.add("unk_id", static_cast<int64_t>(id));
    entries.push_back(fmt::format("[{}, {}]", json_quoted(piece.text), score));
  }
  return model.add_raw("byte_fallback", fmt::format("{}", file.has_byte_fallback))
      .add_raw("vocab", json_list(entries))
      .text();
}

// All merges of two pieces into another piece, best score first: SentencePiece orders merges by the
// score of the result.
std::string merges_of(const SentencePieceFile& file) {
  std::set<std::string_view> known;
  std::vector<const Piece*> made;
  bool has_space = false;
  for (const Piece& piece : file.pieces) {
    if (piece.type != PieceType::kNormal) continue;
    known.insert(piece.text);
    made.push_back(&piece);
    has_space = has_space || piece.text.find(' ') != std::string::npos;
  }
  std::stable_sort(made.begin(), made.end(),
                   [](const Piece* a, const Piece* b) { return a->score > b->score; });
  std::vector<std::string> merges;
  for (const Piece* piece : made) {
    const std::string_view text = piece->text;
    for (size_t at = 1; at < text.size(); ++at) {
      const std::string left(text.substr(0, at)), right(text.substr(at));
      if (!known.contains(left) || !known.contains(right)) continue;
      merges.push_back(has_space ? json_list(std::vector{json_quoted(left), json_quoted(right)})
                                 : json_quoted(left + " " + right));
    }
  }
  return json_list(merges);
}

std::string bpe_model(const SentencePieceFile& file, bool takes_whole_words) {
  JsonLine model;
  model.add("type", "BPE").add_raw("dropout", "null");
  JsonLine vocabulary;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    vocabulary.add(file.pieces[id].text, static_cast<int64_t>(id));
    if (file.pieces[id].type == PieceType::kUnknown) model.add("unk_token", file.pieces[id].text);
  }
  return model.add_raw("continuing_subword_prefix", "null")
      .add_raw("end_of_word_suffix", "null")
      .add_raw("fuse_unk", "true")
      .add_raw("byte_fallback", fmt::format("{}", file.has_byte_fallback))
      .add_raw("ignore_merges", fmt::format("{}", takes_whole_words))
      .add_raw("vocab", vocabulary.text())
      .add_raw("merges", merges_of(file))
      .text();
}

std::string quoted_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = byte >= 0x80 || byte <= ' ' || (c >= '0' && c <= '9') ||
                          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!is_plain) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// User-defined pieces of a BPE model become whole words in the vocabulary.
std::string user_defined_words(const SentencePieceFile& file) {
  std::vector<std::string_view> texts;
  for (const Piece& piece : file.pieces)
    if (piece.type == PieceType::kUserDefined) texts.push_back(piece.text);
  if (texts.empty()) return "null";
  std::stable_sort(texts.begin(), texts.end(),
                   [](std::string_view a, std::string_view b) { return a.size() > b.size(); });
  std::vector<std::string> patterns;
  for (const std::string_view text : texts) patterns.push_back(quoted_pattern(text));
  return json_object(
      {{"type", "Split"},
       {"pattern", RawJson{json_object({{"Regex", fmt::format("{}", fmt::join(patterns, "|"))}})}},
       {"behavior", "Isolated"},
       {"invert", false}});
}

std::string json_of(const SentencePieceFile& file) {
  const bool is_bpe = file.kind == ModelKind::kBpe;
  const std::string words = is_bpe ? user_defined_words(file) : "null";
  return json_object({{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", RawJson{control_tokens(file)}},
                      {"normalizer", RawJson{normalizer_of(file)}},
                      {"pre_tokenizer", RawJson{words}},
                      {"post_processor", nullptr},
                      {"decoder", RawJson{decoder_of(file)}},
                      {"model",
                       RawJson{is_bpe ? bpe_model(file, words != "null") : unigram_model(file)}}}) +
         "\n";
}

bool is_one_character(std::string_view text) {
  return static_cast<size_t>(character_at(text, 0).length) == text.size();
}

// A character that occurs in pieces but is not a piece itself; "" if all are. SentencePiece
// scores such an unknown character differently from `tokenizers`.
std::string missing_character(const SentencePieceFile& file) {
  std::set<std::string_view> single;
  for (const Piece& piece : file.pieces)
    if (piece.is_text() && is_one_character(piece.text)) single.insert(piece.text);
  for (const Piece& piece : file.pieces) {
    if (piece.type != PieceType::kNormal) continue;
    for (size_t at = 0; at < piece.text.size();) {
      const auto length = static_cast<size_t>(character_at(piece.text, at).length);
      if (!single.contains(std::string_view(piece.text).substr(at, length)))
        return piece.text.substr(at, length);
      at += length;
    }
  }
  return "";
}

bool has_equal_scores(const SentencePieceFile& file) {
  std::set<float> scores;
  for (const Piece& piece : file.pieces)
    if (piece.type == PieceType::kNormal && !is_one_character(piece.text) &&
        !scores.insert(piece.score).second)
      return true;
  return false;
}

std::string reason_against(const SentencePieceFile& file) {
  if (file.kind != ModelKind::kUnigram && file.kind != ModelKind::kBpe)
    return "it is a model of whole words or of single characters";
  if (!file.marks_spaces) return "its normalizer does not mark spaces (escape_whitespaces)";
  if (file.has_space_behind)
    return "the space is at the end of its words (treat_whitespace_as_suffix)";
  if (file.kind == ModelKind::kBpe) {
    for (const Piece& piece : file.pieces)
      if (piece.type == PieceType::kUnused)
        return fmt::format("its piece '{}' is used only in merges", piece.text);
    if (has_equal_scores(file)) return "some of its pieces have equal scores";
  }
  if (const std::string character = missing_character(file); !character.empty())
    return fmt::format("the character '{}' occurs in its pieces but is not a piece", character);
  return "";
}

// If BPE takes whole words from the vocabulary, merging must give the same pieces.
std::string reason_against_words(const SentencePieceFile& file, const std::string& where) {
  const std::string json = json_object({{"model", RawJson{bpe_model(file, false)}}});
  const auto tokenizer = tokenizer_of_files(where, {{"tokenizer.json", json}});
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const Piece& piece = file.pieces[id];
    if (piece.type == PieceType::kNormal && tokenizer->encode(piece.text).size() != 1)
      return fmt::format("its merges do not produce its piece '{}'", piece.text);
  }
  return "";
}

}  // namespace

HfTokenizer hf_tokenizer_of(const Tokenizer& tokenizer) {
  HfTokenizer result;
  result.files = files_of_definition(tokenizer.definition());
  result.files.erase(kModelIds);
  if (const std::optional<int32_t> end = tokenizer.end_id()) result.special.end = *end;
  const int32_t start = tokenizer.start_id();
  if (!special_name(tokenizer, start).empty()) result.special.begin = start;
  add_json_of_sentence_piece(tokenizer.name(), &result);
  if (result.files.empty()) {
    result.remark =
        fmt::format("the tokenizer '{}' has no file, so none is exported", tokenizer.name());
  } else if (result.files.contains("tokenizer.json") && !result.files.contains(kSettings)) {
    result.files[kSettings] = tokenizer_config_json(tokenizer);
  }
  return result;
}

HfTokenizer hf_tokenizer_of(const ExperimentConfig& experiment,
                            const std::filesystem::path& run_directory) {
  if (const auto kept = read_run_tokenizer(run_directory)) return hf_tokenizer_of(*kept);
  try {
    const std::unique_ptr<BaseInput> input = make_input(experiment.input);
    if (input->tokenizer() == nullptr) input->attach({.run_directory = run_directory});
    if (const Tokenizer* tokenizer = input->tokenizer()) return hf_tokenizer_of(*tokenizer);
  } catch (const Error& error) {
    return {.remark =
                fmt::format("no tokenizer is exported because the run's input cannot be opened: {}",
                            error.what())};
  }
  return {.remark = "the run's input has no tokenizer, so none is exported"};
}

HfSentencePiece hf_sentence_piece(std::string_view model, const std::string& where) {
  const SentencePieceFile file = parse_sentence_piece_model(model, where);
  std::string reason = reason_against(file);
  if (reason.empty() && file.kind == ModelKind::kBpe && user_defined_words(file) != "null")
    reason = reason_against_words(file, where);
  if (!reason.empty()) return {"", reason};
  return {json_of(file), ""};
}

}  // namespace tessera
