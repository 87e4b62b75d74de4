// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/sentence_piece.h"

#include <sentencepiece_processor.h>

#include <mutex>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "inputs/tokenizers/content_hash.h"
#include "inputs/tokenizers/long_sentence_piece.h"
#include "inputs/tokenizers/sentence_piece_check.h"
#include "inputs/tokenizers/token_text.h"

namespace tessera {
namespace {

constexpr size_t kLongText = size_t{1} << 17;  // Bytes; longer ones are not given out whole.

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& name, const TokenizerFiles& files)
      : name_(name), definition_(definition_of_files(files)) {
    const std::string& model = files.at("tokenizer.model");
    check_sentence_piece_model(model, name);
    const auto status = processor_.LoadFromSerializedProto(model);
    if (!status.ok()) fail("{}: SentencePiece refuses the model: {}", name, status.ToString());
    fingerprint_ = "sentencepiece-" + content_hash(model);
    for (int32_t id = 0; id < processor_.GetPieceSize(); ++id) texts_.push_back(text_of(id));
  }

  const std::string& name() const override { return name_; }
  const std::string& fingerprint() const override { return fingerprint_; }
  const std::string& definition() const override { return definition_; }
  int64_t vocab_size() const override { return static_cast<int64_t>(texts_.size()); }

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>* ids) const override {
    if (text.size() > kLongText) return long_texts().encode(text, ids);
    std::vector<int> found;
    const auto status = processor_.Encode(text, &found);
    if (!status.ok()) fail("{}: SentencePiece fails: {}", name_, status.ToString());
    ids->insert(ids->end(), found.begin(), found.end());
  }

  std::vector<int32_t> encode_with_special(std::string_view text) const override {
    std::vector<int32_t> ids;
    while (!text.empty()) {
      const auto [at, id] = first_control(text);
      if (at > 0) encode(text.substr(0, at), &ids);
      if (id < 0) break;
      ids.push_back(id);
      text.remove_prefix(at + processor_.IdToPiece(id).size());
    }
    return ids;
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::vector<int> known;
    for (const int32_t id : ids)
      if (has(id)) known.push_back(id);
    std::string text;
    const auto status = processor_.Decode(known, &text);
    if (!status.ok()) fail("{}: SentencePiece fails: {}", name_, status.ToString());
    return text;
  }

  int32_t byte_length(int32_t id) const override {
    return has(id) ? static_cast<int32_t>(texts_[static_cast<size_t>(id)].bytes.size()) : 0;
  }
  int32_t start_id() const override { return processor_.bos_id() >= 0 ? processor_.bos_id() : 0; }
  std::optional<int32_t> end_id() const override {
    return processor_.eos_id() >= 0 ? std::optional(processor_.eos_id()) : std::nullopt;
  }
  bool may_be_drawn(int32_t id) const override {
    return has(id) && (id == processor_.eos_id() ||
                       texts_[static_cast<size_t>(id)].kind == TokenText::Kind::kText);
  }
  std::optional<int32_t> id_of(std::string_view token) const override {
    const int32_t id = processor_.PieceToId(token);
    // What is no piece is the unknown one.
    return has(id) && processor_.IdToPiece(id) == token ? std::optional(id) : std::nullopt;
  }
  std::vector<std::string> special_tokens() const override {
    std::vector<std::string> names;
    for (int32_t id = 0; id < processor_.GetPieceSize(); ++id)
      if (processor_.IsControl(id)) names.push_back(processor_.IdToPiece(id));
    return names;
  }

 private:
  // Made when the first long text comes.
  const LongSentencePiece& long_texts() const {
    const std::lock_guard hold(long_texts_mutex_);
    if (long_texts_ == nullptr)
      long_texts_ = std::make_unique<LongSentencePiece>(
          files_of_definition(definition_).at("tokenizer.model"), name_);
    return *long_texts_;
  }

  bool has(int32_t id) const { return id >= 0 && id < vocab_size(); }

  TokenText text_of(int32_t id) const {
    if (processor_.IsControl(id) || processor_.IsUnknown(id) || processor_.IsUnused(id))
      return {TokenText::Kind::kSpecial, ""};
    if (processor_.IsByte(id)) return {TokenText::Kind::kText, std::string(1, '\0')};
    std::string text = processor_.IdToPiece(id);
    for (size_t at = text.find(kSpaceMark); at != std::string::npos;
         at = text.find(kSpaceMark, at + 1))
      text.replace(at, kSpaceMark.size(), " ");
    return {TokenText::Kind::kText, text};
  }

  // Where the first name of a control piece begins, and its id; the text's end and -1 if there is
  // none. Of two at one place the longer counts.
  std::pair<size_t, int32_t> first_control(std::string_view text) const {
    std::pair<size_t, int32_t> first{text.size(), -1};
    size_t longest = 0;
    for (int32_t id = 0; id < processor_.GetPieceSize(); ++id) {
      if (!processor_.IsControl(id)) continue;
      const std::string& piece = processor_.IdToPiece(id);
      const size_t at = text.find(piece);
      if (at > first.first || at == std::string_view::npos) continue;
      if (at == first.first && piece.size() <= longest) continue;
      first = {at, id};
      longest = piece.size();
    }
    return first;
  }

  std::string name_;
  std::string definition_;
  std::string fingerprint_;
  sentencepiece::SentencePieceProcessor processor_;
  mutable std::mutex long_texts_mutex_;
  mutable std::unique_ptr<LongSentencePiece> long_texts_;
  std::vector<TokenText> texts_;  // By id; of byte pieces only the length counts.
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentence_piece_tokenizer(const std::string& name,
                                                         const TokenizerFiles& files) {
  return std::make_unique<SentencePieceTokenizer>(name, files);
}

}  // namespace tessera
