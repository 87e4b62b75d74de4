// SPDX-License-Identifier: Apache-2.0
#include "inputs/streaming/text_lane.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/base/error.h"
#include "inputs/flat_tokens_file.h"

namespace tessera {

std::string lane_place_text(const LanePlace& place) {
  return fmt::format("{} {} {} {} {}", place.document.unit, place.document.block.document,
                     place.document.block.offset, place.document.index, place.tokens);
}

LanePlace parse_lane_place(const std::string& text, const std::string& what) {
  std::array<int64_t, 5> numbers{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && at != end && *at == ' ') ++at;
    const auto [next, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc() || numbers[i] < 0)
      fail("{} is '{}'; expected five whole numbers: unit, document, offset, index, tokens", what,
           text);
    at = next;
  }
  if (at != end) fail("{} is '{}'; expected five whole numbers", what, text);
  const auto [unit, document, offset, index, tokens] = numbers;
  return {{.unit = unit, .block = {document, offset}, .index = index, .broken = {}}, tokens};
}

TextLane::TextLane(std::shared_ptr<const TextShards> shards, const Tokenizer& tokenizer,
                   const Options& options, int64_t row)
    : tokenizer_(tokenizer), options_(options), documents_(std::move(shards), row) {}

void TextLane::restore(const LanePlace& place) {
  documents_.restore(place.document);
  pieces_.clear();
  available_ = 0;
  skip_ = static_cast<size_t>(place.tokens);
  resumed_ = place.document;
}

LanePlace TextLane::place() const {
  if (pieces_.empty()) return {documents_.place(), static_cast<int64_t>(skip_)};
  return {pieces_.front().place, static_cast<int64_t>(pieces_.front().used)};
}

// False at the end of the documents.
bool TextLane::add_document() {
  std::optional<LaneDocuments::Document> document = documents_.next();
  if (!document) return false;
  Piece piece{std::move(document->place), tokenizer_.encode(document->text), skip_};
  if (options_.end_of_document == EndOfDocument::kAuto)
    if (const std::optional<int32_t> end = tokenizer_.end_id()) piece.ids.push_back(*end);
  const bool is_resumed = piece.place.unit == resumed_.unit &&
                          piece.place.block.document == resumed_.block.document &&
                          piece.place.index == resumed_.index;
  if (skip_ > 0 && (!is_resumed || skip_ >= piece.ids.size()))
    fail(
        "the text is not what it was when the run was saved: of a document after number {} of "
        "shard {}, {} tokens were given out before, and it is not there or no longer",
        resumed_.block.document, documents_.shard_name(resumed_.unit), skip_);
  skip_ = 0;
  if (piece.ids.empty()) return true;
  available_ += piece.ids.size() - piece.used;
  pieces_.push_back(std::move(piece));
  return true;
}

std::vector<uint32_t> TextLane::next_row() {
  const auto seq_len = static_cast<size_t>(options_.seq_len);
  const auto wanted = static_cast<size_t>(tokens_per_row(options_.labels, options_.seq_len));
  while (available_ < wanted && add_document()) {
  }
  if (available_ <= wanted - seq_len) return {};  // Nothing to predict.

  std::vector<uint32_t> row;
  row.reserve(std::min(available_, wanted));
  for (const Piece& piece : pieces_) {
    for (size_t i = piece.used; i < piece.ids.size() && row.size() < wanted; ++i)
      row.push_back(encode_token(piece.ids[i], i == 0));
    if (row.size() == wanted) break;
  }
  // A token beyond the row, which was read to be predicted, is the first of the next.
  for (size_t left = std::min(seq_len, available_); left > 0;) {
    Piece& front = pieces_.front();
    const size_t taken = std::min(left, front.ids.size() - front.used);
    front.used += taken;
    left -= taken;
    available_ -= taken;
    if (front.used == front.ids.size()) pieces_.pop_front();
  }
  return row;
}

}  // namespace tessera
