// SPDX-License-Identifier: Apache-2.0
// Merges the symbols of a word. Short words rescan all pairs for each merge: quadratic, but fast.
// Long words use a heap of merges and a linked list of symbols.
#include "inputs/tokenizers/bpe_model.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "core/base/error.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {
namespace {

constexpr size_t kLongestShortWord = 64;

// `scratch` has the merges of neighbouring symbols.
void merge_short(const PairTable& table, MergeScratch* scratch) {
  std::vector<int32_t>& symbols = scratch->symbols;
  std::vector<PairTable::Merge>& merges = scratch->merges;
  size_t count = symbols.size();
  while (count > 1) {
    // As unsigned, -1 is the largest.
    size_t best = 0;
    uint32_t lowest = static_cast<uint32_t>(merges[0].rank);
    for (size_t i = 1; i + 1 < count; ++i) {
      const auto rank = static_cast<uint32_t>(merges[i].rank);
      if (rank < lowest) {
        lowest = rank;
        best = i;
      }
    }
    if (merges[best].rank < 0) break;
    symbols[best] = merges[best].made;
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < count; ++i) merges[i] = merges[i + 1];
    if (best + 1 < count) merges[best] = table.find(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = table.find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(count);
}

class LongWord {
 public:
  LongWord(const PairTable& table, MergeScratch* scratch)
      : table_(table),
        symbols_(scratch->symbols),
        previous_(scratch->previous),
        next_(scratch->next),
        queue_(scratch->queue) {}

  void merge() {
    link();
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), later);
      const QueuedMerge top = queue_.back();
      queue_.pop_back();
      const int32_t right = next_[at(top.position)];
      // The entry may be stale.
      if (symbols_[at(top.position)] < 0 || right == end_) continue;
      if (table_.find(symbols_[at(top.position)], symbols_[at(right)]).made != top.made) continue;
      symbols_[at(top.position)] = top.made;
      symbols_[at(right)] = -1;
      const int32_t after = next_[at(right)];
      next_[at(top.position)] = after;
      if (after != end_) previous_[at(after)] = top.position;
      if (previous_[at(top.position)] >= 0) push(previous_[at(top.position)], top.position);
      if (after != end_) push(top.position, after);
    }
    std::erase(symbols_, -1);
  }

 private:
  static size_t at(int32_t position) { return static_cast<size_t>(position); }
  static bool later(const QueuedMerge& one, const QueuedMerge& other) {
    return one.rank != other.rank ? one.rank > other.rank : one.position > other.position;
  }

  void link() {
    end_ = static_cast<int32_t>(symbols_.size());
    previous_.resize(symbols_.size());
    next_.resize(symbols_.size());
    queue_.clear();
    for (int32_t i = 0; i < end_; ++i) {
      previous_[at(i)] = i - 1;
      next_[at(i)] = i + 1;
      if (i + 1 == end_) continue;
      const PairTable::Merge merge = table_.find(symbols_[at(i)], symbols_[at(i + 1)]);
      if (merge.rank >= 0) queue_.push_back({merge.rank, i, merge.made});
    }
    std::make_heap(queue_.begin(), queue_.end(), later);
  }

  void push(int32_t left, int32_t right) {
    const PairTable::Merge merge = table_.find(symbols_[at(left)], symbols_[at(right)]);
    if (merge.rank < 0) return;
    queue_.push_back({merge.rank, left, merge.made});
    std::push_heap(queue_.begin(), queue_.end(), later);
  }

  const PairTable& table_;
  std::vector<int32_t>& symbols_;
  std::vector<int32_t>& previous_;
  std::vector<int32_t>& next_;
  std::vector<QueuedMerge>& queue_;
  int32_t end_ = 0;
};

// Symbol positions have 32 bits.
constexpr size_t kLongestWord = std::numeric_limits<int32_t>::max() / 4;

}  // namespace

BpeModel::BpeModel(const BpeDefinition& definition, const std::string& where)
    : where_(where),
      is_byte_level_(definition.is_byte_level),
      fuses_unknown_(definition.fuses_unknown),
      continuing_prefix_(definition.continuing_prefix),
      end_suffix_(definition.end_suffix),
      has_byte_fallback_(definition.has_byte_fallback) {
  std::unordered_map<int32_t, std::string_view> names;
  ids_.reserve(definition.vocabulary.size());
  names.reserve(definition.vocabulary.size());
  for (const auto& [token, id] : definition.vocabulary) {
    if (!ids_.emplace(token, id).second) fail("{}: the vocabulary has '{}' twice", where_, token);
    const auto [other, is_new] = names.emplace(id, token);
    if (!is_new)
      fail("{}: the vocabulary has id {} twice: '{}' and '{}'", where_, id, other->second, token);
  }
  if (definition.unknown_token) {
    unknown_ = id_of(*definition.unknown_token);
    if (!unknown_)
      fail("{}: unk_token '{}' is not in the vocabulary", where_, *definition.unknown_token);
  }
  symbols_are_bytes_ = is_byte_level_ && continuing_prefix_.empty() && end_suffix_.empty();
  add_byte_symbols();
  add_merges(definition);
  if (!definition.ignores_merges) return;
  for (const auto& [token, id] : definition.vocabulary) {
    const auto bytes = is_byte_level_ ? byte_level_decode(token) : token;
    if (bytes) whole_words_.emplace(*bytes, id);
  }
}

void BpeModel::add_byte_symbols() {
  byte_ids_.fill(-1);
  fallback_ids_.fill(-1);
  for (int byte = 0; byte < 256; ++byte) {
    const std::string raw(1, static_cast<char>(byte));
    byte_ids_[static_cast<size_t>(byte)] = id_of(byte_level_encode(raw)).value_or(-1);
    fallback_ids_[static_cast<size_t>(byte)] = id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

void BpeModel::add_merges(const BpeDefinition& definition) {
  merges_ = PairTable(definition.merges.size());
  int32_t rank = 0;
  for (const auto& [left, right] : definition.merges) {
    const auto require = [&](const std::string& token) {
      const auto id = id_of(token);
      if (!id)
        fail("{}: merge {} ('{}' with '{}') needs the token '{}', which is not in the vocabulary",
             where_, rank, left, right, token);
      return *id;
    };
    // The prefix of the right part is not repeated in the merged token.
    const size_t prefix = std::min(continuing_prefix_.size(), right.size());
    const int32_t left_id = require(left);
    const int32_t right_id = require(right);
    merges_.put(left_id, right_id, {rank, require(left + right.substr(prefix))});
    ++rank;
  }
  if (!symbols_are_bytes_) return;
  byte_merges_.resize(1 << 16);
  for (size_t pair = 0; pair < byte_merges_.size(); ++pair)
    byte_merges_[pair] = merges_.find(byte_ids_[pair >> 8], byte_ids_[pair & 0xff]);
}

std::optional<int32_t> BpeModel::id_of(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

bool BpeModel::byte_symbols(std::string_view word, std::vector<int32_t>* symbols) const {
  if (!symbols_are_bytes_) return false;
  symbols->resize(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(word[i])];
    if (id < 0) return false;
    (*symbols)[i] = id;
  }
  return true;
}

void BpeModel::character_symbols(std::string_view raw, std::vector<int32_t>* symbols) const {
  const std::string written = is_byte_level_ ? byte_level_encode(raw) : "";
  const std::string_view word = is_byte_level_ ? std::string_view(written) : raw;
  symbols->clear();
  bool unknown_pending =
      false;  // As in the reference, an unknown token is emitted with the next symbol.
  std::string symbol;
  for (size_t at = 0; at < word.size();) {
    const auto length = static_cast<size_t>(character_at(word, at).length);
    const std::string_view character = word.substr(at, length);
    symbol = at == 0 ? "" : continuing_prefix_;
    symbol += character;
    at += length;
    if (at == word.size()) symbol += end_suffix_;
    if (const auto id = id_of(symbol)) {
      if (unknown_pending) symbols->push_back(*unknown_);
      unknown_pending = false;
      symbols->push_back(*id);
      continue;
    }
    const auto fallback = [&](char byte) {
      return fallback_ids_[static_cast<unsigned char>(byte)];
    };
    if (has_byte_fallback_ &&
        std::all_of(symbol.begin(), symbol.end(), [&](char byte) { return fallback(byte) >= 0; })) {
      for (const char byte : symbol) symbols->push_back(fallback(byte));
      continue;
    }
    if (!unknown_)
      fail("{}: the vocabulary has no token for '{}' and no unk_token", where_, symbol);
    if (unknown_pending && !fuses_unknown_) symbols->push_back(*unknown_);
    unknown_pending = true;
  }
  if (unknown_pending) symbols->push_back(*unknown_);
}

void BpeModel::encode_word(std::string_view word, MergeScratch* scratch,
                           std::vector<int32_t>* ids) const {
  const auto take_whole_word = [&] {
    const auto found = whole_words_.find(std::string(word));
    if (found != whole_words_.end()) ids->push_back(found->second);
    return found != whole_words_.end();
  };
  // If merges of bytes make one token, it is the whole word.
  if (!symbols_are_bytes_ && !whole_words_.empty() && take_whole_word()) return;
  if (word.size() > kLongestWord)
    fail("{}: a word of {} bytes is longer than the {} that are supported", where_, word.size(),
         kLongestWord);
  const std::vector<int32_t>& symbols = scratch->symbols;
  const bool are_bytes = byte_symbols(word, &scratch->symbols);
  if (!are_bytes) character_symbols(word, &scratch->symbols);
  if (symbols.size() > kLongestShortWord) {
    LongWord(merges_, scratch).merge();
  } else {
    scratch->merges.resize(symbols.size());
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      scratch->merges[i] =
          are_bytes ? byte_merges_[static_cast<size_t>(static_cast<unsigned char>(word[i])) << 8 |
                                   static_cast<unsigned char>(word[i + 1])]
                    : merges_.find(symbols[i], symbols[i + 1]);
    merge_short(merges_, scratch);
  }
  if (are_bytes && symbols.size() > 1 && !whole_words_.empty() && take_whole_word()) return;
  ids->insert(ids->end(), symbols.begin(), symbols.end());
}

std::string BpeModel::description() const {
  std::vector<std::pair<int32_t, std::string_view>> tokens;
  for (const auto& [token, id] : ids_) tokens.emplace_back(id, token);
  std::sort(tokens.begin(), tokens.end());
  std::vector<std::array<int32_t, 4>> merges;
  merges_.for_each([&](int32_t left, int32_t right, PairTable::Merge merge) {
    merges.push_back({merge.rank, left, right, merge.made});
  });
  std::sort(merges.begin(), merges.end());
  std::string text =
      fmt::format("bytes {} unknown {} fused {} fallback {} whole {} prefix '{}' suffix '{}'\n",
                  is_byte_level_, unknown_.value_or(-1), fuses_unknown_, has_byte_fallback_,
                  !whole_words_.empty(), continuing_prefix_, end_suffix_);
  const auto end = std::back_inserter(text);
  for (const auto& [id, token] : tokens) fmt::format_to(end, "{} {}:{}\n", id, token.size(), token);
  // The order of merges matters, not the rank values.
  for (const auto& merge : merges) fmt::format_to(end, "{} {} {}\n", merge[1], merge[2], merge[3]);
  return text;
}

}  // namespace tessera
