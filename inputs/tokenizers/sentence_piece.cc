// SPDX-License-Identifier: Apache-2.0
#include "inputs/tokenizers/sentence_piece.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {
namespace {

void check_status(const sentencepiece::util::Status& status, const std::string& where) {
  if (!status.ok()) fail("{}: error of SentencePiece: {}", where, status.ToString());
}

uint64_t pair_key(int32_t first, int32_t second) {
  return uint64_t{static_cast<uint32_t>(first)} << 32 | static_cast<uint32_t>(second);
}

std::vector<uint64_t> neighbours_in(const std::vector<SentencePieceFile::Piece>& pieces) {
  std::vector<uint64_t> pairs;
  for (const SentencePieceFile::Piece& piece : pieces) {
    if (!piece.is_text()) continue;
    int32_t before = -1;
    for (size_t at = 0; at < piece.text.size();) {
      const Character character = character_at(piece.text, at);
      if (before >= 0) pairs.push_back(pair_key(before, character.code));
      before = character.code;
      at += static_cast<size_t>(character.length);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  pairs.shrink_to_fit();
  return pairs;
}

bool is_within_character(std::string_view text, size_t at) {
  return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
}

constexpr size_t kLongText = size_t{1} << 17;  // Bytes; longer texts are encoded in chunks.

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& name, const TokenizerFiles& files) {
    name_ = name;
    definition_ = definition_of_files(files);
    const std::string& model = files.at("tokenizer.model");
    parse_sentence_piece_model(model, name);  // Checks it.
    check_status(processor_.LoadFromSerializedProto(model), name);
    fingerprint_ = "sentencepiece-" + content_hash(model);
    for (int32_t id = 0; id < processor_.GetPieceSize(); ++id) texts_.push_back(text_of(id));
    start_id_ = std::max(processor_.bos_id(), 0);
    if (processor_.eos_id() >= 0) end_id_ = processor_.eos_id();
  }

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>* ids) const override {
    if (text.size() > kLongText) return long_texts().encode(text, ids);
    std::vector<int> found;
    check_status(processor_.Encode(text, &found), name_);
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
    check_status(processor_.Decode(known, &text), name_);
    return text;
  }

  std::optional<int32_t> id_of(std::string_view token) const override {
    const int32_t id = processor_.PieceToId(token);
    // The library returns the unknown piece for others.
    return has(id) && processor_.IdToPiece(id) == token ? std::optional(id) : std::nullopt;
  }
  std::vector<std::string> special_tokens() const override {
    std::vector<std::string> names;
    for (int32_t id = 0; id < processor_.GetPieceSize(); ++id)
      if (processor_.IsControl(id)) names.push_back(processor_.IdToPiece(id));
    return names;
  }

 private:
  // Created at the first long text.
  const ChunkedSentencePiece& long_texts() const {
    const std::lock_guard hold(long_texts_mutex_);
    if (long_texts_ == nullptr)
      long_texts_ = std::make_unique<ChunkedSentencePiece>(
          files_of_definition(definition_).at("tokenizer.model"), name_);
    return *long_texts_;
  }

  TokenText text_of(int32_t id) const {
    if (processor_.IsControl(id) || processor_.IsUnknown(id) || processor_.IsUnused(id))
      return {TokenText::Kind::kSpecial, ""};
    // Only the length of byte pieces is used.
    if (processor_.IsByte(id)) return {TokenText::Kind::kText, std::string(1, '\0')};
    std::string text = processor_.IdToPiece(id);
    for (size_t at = text.find(kSpaceMark); at != std::string::npos;
         at = text.find(kSpaceMark, at + 1))
      text.replace(at, kSpaceMark.size(), " ");
    return {TokenText::Kind::kText, text};
  }

  // Returns the position and id of the first control piece named in the text; its size and -1 if
  // there is none. The longest name at a position is taken.
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

  sentencepiece::SentencePieceProcessor processor_;
  mutable std::mutex long_texts_mutex_;
  mutable std::unique_ptr<ChunkedSentencePiece> long_texts_;
};

}  // namespace

ChunkedSentencePiece::ChunkedSentencePiece(std::string_view model, const std::string& where,
                                           const ChunkLimits& cut)
    : ChunkedSentencePiece(parse_sentence_piece_model(model, where), model, where, cut) {}

ChunkedSentencePiece::ChunkedSentencePiece(const SentencePieceFile& file, std::string_view model,
                                           const std::string& where, const ChunkLimits& cut)
    : where_(where),
      cut_(cut),
      kind_(file.kind),
      has_byte_fallback_(file.has_byte_fallback),
      normalizer_(file),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()),
      neighbours_(neighbours_in(file.pieces)) {
  check_status(processor_->LoadFromSerializedProto(without_normalizer(model, where)), where_);
}

ChunkedSentencePiece::~ChunkedSentencePiece() = default;

// Returns whether a token may span the boundary before the character at `at` > 0. In unigram and
// BPE models, tokens and intermediate merges are pieces, so none spans it if the two characters are
// adjacent in no piece. In word models, tokens begin at space marks.
bool ChunkedSentencePiece::may_cross(std::string_view text, size_t at) const {
  if (kind_ == SentencePieceFile::Kind::kWord) return !text.substr(at).starts_with(kSpaceMark);
  const int32_t before = character_at(text, character_before(text, at)).code;
  const uint64_t pair = pair_key(before, character_at(text, at).code);
  return std::binary_search(neighbours_.begin(), neighbours_.end(), pair);
}

// Returns where to end the first chunk of a text.
size_t ChunkedSentencePiece::cut_of(std::string_view text) const {
  const auto is_good = [&](size_t at) {
    return !is_within_character(text, at) && !may_cross(text, at);
  };
  const size_t most = std::min(cut_.most, text.size() - 1);
  for (size_t at = std::min(cut_.usual, most); at > 0; --at)
    if (is_good(at)) return at;
  for (size_t at = cut_.usual + 1; at <= most; ++at)
    if (is_good(at)) return at;
  size_t at = most;
  while (at > 1 && is_within_character(text, at)) --at;
  return at;
}

// The library writes one unknown token for a run of unknown characters, also across chunks.
void ChunkedSentencePiece::encode_piece(std::string_view normalized, bool is_first,
                                        std::vector<int32_t>* ids) const {
  std::vector<int> found;
  check_status(processor_->Encode(normalized, &found), where_);
  const bool continues = !is_first && !has_byte_fallback_ && !ids->empty() && !found.empty() &&
                         ids->back() == found.front() && processor_->IsUnknown(found.front());
  ids->insert(ids->end(), found.begin() + (continues ? 1 : 0), found.end());
}

void ChunkedSentencePiece::encode(std::string_view text, std::vector<int32_t>* ids) const {
  SentencePieceNormalizer::State state = SentencePieceNormalizer::start(text);
  std::string waiting;  // Normalized text; encoded up to `begin`.
  size_t begin = 0;
  bool is_first = true;
  while (!state.is_done) {
    waiting.erase(0, begin);
    begin = 0;
    normalizer_.advance(&state, 4 * cut_.most, &waiting);
    while (waiting.size() - begin > cut_.most) {
      const std::string_view rest = std::string_view(waiting).substr(begin);
      const size_t cut = cut_of(rest);
      encode_piece(rest.substr(0, cut), is_first, ids);
      is_first = false;
      begin += cut;
    }
  }
  encode_piece(std::string_view(waiting).substr(begin), is_first, ids);
}

std::unique_ptr<Tokenizer> make_sentence_piece_tokenizer(const std::string& name,
                                                         const TokenizerFiles& files) {
  return std::make_unique<SentencePieceTokenizer>(name, files);
}

}  // namespace tessera
