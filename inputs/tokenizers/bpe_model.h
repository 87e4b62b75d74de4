// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one word, with the ids of Hugging Face's tokenizers library, in O(n log n).
// Symbols are bytes (GPT-2) or characters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera {

class PairTable {
 public:
  struct Merge {
    int32_t rank = -1;  // Lower ranks merge first; -1: no merge.
    int32_t made = -1;  // The merged symbol.
  };

  explicit PairTable(size_t most_pairs = 0) {
    size_t slots = 16;
    while (slots < 2 * most_pairs) slots *= 2;
    slots_.resize(slots);
    mask_ = slots - 1;
  }

  // Replaces an earlier merge of the pair.
  void put(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[place(left, right)];
    slot = {left, right, merge};
  }

  Merge find(int32_t left, int32_t right) const { return slots_[place(left, right)].merge; }

  template <typename Take>
  void for_each(const Take& take) const {
    for (const Slot& slot : slots_)
      if (slot.left >= 0) take(slot.left, slot.right, slot.merge);
  }

 private:
  struct Slot {
    int32_t left = -1;  // -1: free slot.
    int32_t right = -1;
    Merge merge;
  };

  // Returns the slot of the pair, or the free slot where it belongs.
  size_t place(int32_t left, int32_t right) const {
    const uint64_t pair =
        static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    uint64_t mixed = pair * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 32;
    size_t at = mixed & mask_;
    while (slots_[at].left >= 0 && (slots_[at].left != left || slots_[at].right != right))
      at = (at + 1) & mask_;
    return at;
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

// Byte-pair merging: repeatedly merges the adjacent pair of lowest rank, leftmost first.

// A candidate merge of the symbol at `position` and the next one.
struct QueuedMerge {
  int32_t rank = 0;
  int32_t position = 0;
  int32_t made = 0;
};

// Memory that the calls of one thread reuse.
struct MergeScratch {
  std::vector<int32_t> symbols;  // Input and output.
  std::vector<int32_t> previous;
  std::vector<int32_t> next;
  std::vector<PairTable::Merge> merges;  // [i]: of symbols i and i + 1.
  std::vector<QueuedMerge> queue;
};

// A vocabulary and merges, with tokens as written in the file.
struct BpeDefinition {
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // By rank.
  bool is_byte_level = false;  // Tokens are in GPT-2's byte-level alphabet (unicode.h).
  std::optional<std::string> unknown_token;  // For characters without a token.
  bool fuses_unknown = false;                // Consecutive unknown tokens become one.
  bool has_byte_fallback = false;            // Unknown characters become byte tokens: <0x0A>.
  bool ignores_merges = false;               // A word in the vocabulary is encoded without merges.
  std::string continuing_prefix;             // Prefix of symbols inside a word.
  std::string end_suffix;                    // Suffix of symbols at the end of a word.
};

class BpeModel {
 public:
  // Error, prefixed with `where`, if the parts are inconsistent.
  BpeModel(const BpeDefinition& definition, const std::string& where);

  // Appends the ids of a word of raw bytes.
  void encode_word(std::string_view word, MergeScratch* scratch, std::vector<int32_t>* ids) const;

  std::optional<int32_t> id_of(std::string_view token) const;
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  // Returns everything that determines ids, for fingerprints.
  std::string description() const;

 private:
  void add_merges(const BpeDefinition& definition);
  void add_byte_symbols();
  // False if symbols are not bytes, or a byte has no token.
  bool byte_symbols(std::string_view word, std::vector<int32_t>* symbols) const;
  void character_symbols(std::string_view word, std::vector<int32_t>* symbols) const;

  std::string where_;
  // By the token as written in the file.
  std::unordered_map<std::string, int32_t> ids_;
  // By raw bytes, if ignores_merges.
  std::unordered_map<std::string, int32_t> whole_words_;
  bool symbols_are_bytes_ = false;
  bool is_byte_level_ = false;
  bool fuses_unknown_ = false;
  std::optional<int32_t> unknown_;
  std::string continuing_prefix_;
  std::string end_suffix_;
  std::array<int32_t, 256> byte_ids_{};      // -1: none.
  std::array<int32_t, 256> fallback_ids_{};  // -1: none.
  bool has_byte_fallback_ = false;
  PairTable merges_;
  std::vector<PairTable::Merge> byte_merges_;  // By two bytes, if symbols are bytes.
};

}  // namespace tessera
