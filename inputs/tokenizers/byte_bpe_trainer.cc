// SPDX-License-Identifier: Apache-2.0
// The most frequent pair of adjacent tokens is merged repeatedly. To bound memory, this is done in
// phases: only pairs above a threshold are queued and have lists of their positions. When none is
// left, the next phase has a lower threshold.
#include "inputs/tokenizers/byte_bpe_trainer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <unordered_map>

#include "core/base/error.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {
namespace {

constexpr int64_t kMostOccurrences = int64_t{1} << 36;
constexpr size_t kMostLists = size_t{1} << 26;

// Two adjacent tokens, in 16 bytes: a large text has tens of millions of pairs.
struct PairState {
  int32_t left = -1;  // -1: free slot.
  int32_t right = -1;
  // How often the pair occurs, as BpeTrainer counts: merging the pair itself does not reduce it.
  uint64_t count : 36 = 0;
  uint64_t is_waiting : 1 = 0;  // It will be merged if it is the most frequent one.
  uint64_t is_new : 1 = 0;      // The current merge made occurrences of it.
  uint64_t list : 26 = 0;       // Its list of positions, which is complete; 0: none.
};
static_assert(sizeof(PairState) == 16);

class PairStates {
 public:
  // Adds the pair if it is unknown. Valid until the next call.
  PairState& at(int32_t left, int32_t right) {
    PairState* found = &slots_[place(left, right)];
    if (found->left >= 0) return *found;
    if (10 * ++size_ > 7 * slots_.size()) {
      grow();
      found = &slots_[place(left, right)];
    }
    found->left = left;
    found->right = right;
    return *found;
  }

  uint64_t list_of(int32_t left, int32_t right) const { return slots_[place(left, right)].list; }

  template <typename Take>
  void for_each(const Take& take) {
    for (PairState& slot : slots_)
      if (slot.left >= 0) take(slot);
  }

 private:
  static bool is_used(const PairState& slot) {
    return slot.left >= 0 && (slot.count > 0 || slot.is_new != 0 || slot.list != 0);
  }

  size_t place(int32_t left, int32_t right) const {
    const uint64_t pair =
        static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    uint64_t mixed = pair * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 32;
    size_t at = mixed & (slots_.size() - 1);
    while (slots_[at].left >= 0 && (slots_[at].left != left || slots_[at].right != right))
      at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  // Removes pairs that no longer occur, and doubles the table if that does not help.
  void grow() {
    size_ = 1 + static_cast<size_t>(std::ranges::count_if(slots_, is_used));
    std::vector<PairState> old(5 * size_ > 2 * slots_.size() ? 2 * slots_.size() : slots_.size());
    old.swap(slots_);
    for (const PairState& slot : old)
      if (is_used(slot)) slots_[place(slot.left, slot.right)] = slot;
  }

  std::vector<PairState> slots_ = std::vector<PairState>(size_t{1} << 17);  // A power of two.
  size_t size_ = 0;
};

// All distinct words in one array, with a slot for each byte. A token is in its first slot; the
// last slot of several holds minus their number, so that a token's neighbours are found both ways.
class JoinedWords {
 public:
  static constexpr int32_t kEnd = std::numeric_limits<int32_t>::min();  // Between words.
  static constexpr int32_t kInside = kEnd + 1;

  JoinedWords(const WordCounts& counts, const std::array<int32_t, 256>& byte_ids) {
    std::unordered_map<int64_t, size_t> places;  // Where to write the next word of a count.
    int64_t occurrences = 0;
    for (const WordCounts::Word& word : counts.words()) {
      places[word.count] += word.size + size_t{1};
      occurrences += word.count * word.size;
    }
    size_t size = 1;
    for (auto& [count, place] : places) {
      groups_.emplace_back(size, count);
      size += std::exchange(place, size);
    }
    if (size > std::numeric_limits<uint32_t>::max() || occurrences >= kMostOccurrences)
      fail("{} bytes of text with {} bytes of distinct words: too much; train on a sample",
           occurrences, size);
    slots_.assign(size, kEnd);
    for (const WordCounts::Word& word : counts.words()) {
      size_t& place = places[word.count];
      for (const char c : word.text()) slots_[place++] = byte_ids[static_cast<unsigned char>(c)];
      ++place;
    }
  }

  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }
  int32_t operator[](size_t position) const { return slots_[position]; }

  // Returns the position of the token before; 0: none.
  uint32_t before(uint32_t position) const {
    const int32_t last = slots_[position - 1];
    if (last == kEnd) return 0;
    return last >= 0 ? position - 1 : position - static_cast<uint32_t>(-last);
  }

  // Makes a token of the one at `position` and the one at `right`, which ends at `end`.
  void join(uint32_t position, uint32_t right, uint32_t end, int32_t token) {
    slots_[right] = kInside;
    slots_[end - 1] = -static_cast<int32_t>(end - position);
    slots_[position] = token;
  }

  // Returns how often the word at a position occurs.
  uint64_t count_at(uint32_t position) const {
    const auto after = std::ranges::upper_bound(groups_, position, {}, &Group::first);
    return static_cast<uint64_t>(std::prev(after)->second);
  }

 private:
  using Group = std::pair<size_t, int64_t>;
  std::vector<int32_t> slots_;
  std::vector<Group> groups_;  // First position and count of words with equal counts.
};

class ByteBpeTraining {
 public:
  ByteBpeTraining(WordCounts counts, const ByteBpeOptions& options)
      : options_(options), words_(counts, add_first_tokens()) {
    counts = {};
    for_each_pair([&](uint32_t, int32_t left, int32_t right, uint64_t count) {
      PairState& state = states_.at(left, right);
      state.count += count;
      state.is_waiting = 1;
    });
  }

  ByteBpe run() {
    while (begin_phase())
      while (!queue_.empty()) {
        if (std::ssize(trained_.vocabulary) >= options_.vocab_size) return finish();
        const Queued top = queue_.top();
        queue_.pop();
        PairState& state = states_.at(top.left, top.right);
        const uint64_t count = state.count;
        if (state.is_waiting == 0 || count < threshold_) continue;
        if (count != top.count) {
          queue_.push({count, top.left, top.right});
        } else if (static_cast<int64_t>(count) < options_.min_frequency) {
          return finish();
        } else {
          merge(&state);
        }
      }
    return finish();
  }

 private:
  struct Queued {
    uint64_t count;
    int32_t left, right;

    bool operator<(const Queued& other) const {  // Merged later.
      if (count != other.count) return count < other.count;
      return std::pair(left, right) > std::pair(other.left, other.right);
    }
  };

  // Special tokens and bytes, in the order of their characters. Returns the ids of bytes.
  std::array<int32_t, 256> add_first_tokens() {
    for (const std::string& token : options_.special_tokens) id_of(token);
    std::vector<std::string> characters;
    for (int byte = 0; byte < 256; ++byte)
      characters.push_back(byte_level_encode(std::string(1, static_cast<char>(byte))));
    std::vector<std::string> sorted = characters;
    std::ranges::sort(sorted);
    for (const std::string& character : sorted) id_of(character);
    std::array<int32_t, 256> ids{};
    for (size_t byte = 0; byte < 256; ++byte) ids[byte] = id_of(characters[byte]);
    lengths_.assign(trained_.vocabulary.size(), 1);
    return ids;
  }

  // Adds the token if it is unknown.
  int32_t id_of(const std::string& token) {
    const auto [found, is_added] =
        ids_.try_emplace(token, static_cast<int32_t>(trained_.vocabulary.size()));
    if (is_added) trained_.vocabulary.push_back(token);
    return found->second;
  }

  uint32_t length(int32_t token) const { return lengths_[static_cast<size_t>(token)]; }

  template <typename Take>
  void for_each_pair(const Take& take) const {
    for (uint32_t at = 1; at < words_.size();) {
      const uint64_t count = words_[at] >= 0 ? words_.count_at(at) : 0;
      while (words_[at] >= 0) {
        const uint32_t next = at + length(words_[at]);
        if (words_[next] >= 0) take(at, words_[at], words_[next], count);
        at = next;
      }
      ++at;
    }
  }

  // Queues the most frequent pairs; false if none is left.
  bool begin_phase() {
    constexpr uint64_t kRange = 16;  // Of counts in a phase.
    uint64_t most = 0;
    states_.for_each([&](PairState& state) {
      state.list = 0;
      if (state.is_waiting != 0) most = std::max<uint64_t>(most, state.count);
    });
    threshold_ = std::max<uint64_t>(1, most / kRange);
    lists_.assign(1, {});
    free_lists_.clear();
    states_.for_each([&](PairState& state) {
      if (state.is_waiting != 0 && state.count >= threshold_) add_to_queue(&state, true);
    });
    for_each_pair([&](uint32_t at, int32_t left, int32_t right, uint64_t) {
      if (const uint64_t list = states_.list_of(left, right)) lists_[list].push_back(at);
    });
    if (threshold_ > std::max<uint64_t>(1, most))
      fail("too many pairs of tokens occur {} times; ask for fewer tokens", most);
    return most > 0;
  }

  void take_list(PairState* state) {
    if (!free_lists_.empty()) {
      state->list = free_lists_.back();
      free_lists_.pop_back();
    } else if (lists_.size() < kMostLists) {
      state->list = lists_.size();
      lists_.emplace_back();
    }
  }

  std::vector<uint32_t> free_list(PairState* state) {
    const uint64_t list = state->list;
    state->list = 0;
    if (list == 0) return {};
    free_lists_.push_back(static_cast<uint32_t>(list));
    return std::exchange(lists_[list], {});
  }

  // Without a list the phase ends before the pair is merged.
  void add_to_queue(PairState* state, bool takes_list) {
    if (takes_list) take_list(state);
    if (state->list == 0)
      threshold_ = state->count + 1;
    else
      queue_.push({state->count, state->left, state->right});
  }

  void merge(PairState* state) {
    const int32_t left = state->left, right = state->right;
    const auto name = [&](int32_t id) { return trained_.vocabulary[static_cast<size_t>(id)]; };
    const int32_t made = id_of(name(left) + name(right));
    lengths_.resize(trained_.vocabulary.size());
    lengths_[static_cast<size_t>(made)] = length(left) + length(right);
    trained_.merges.emplace_back(left, right);
    state->is_waiting = 0;
    std::vector<uint32_t> positions = free_list(state);
    if (!std::ranges::is_sorted(positions)) std::ranges::sort(positions);
    for (const uint32_t position : positions) merge_at(position, left, right, made);
    for (const auto& [first, second] : new_pairs_) {
      PairState& pair = states_.at(first, second);
      pair.is_new = 0;
      if (pair.count > 0) pair.is_waiting = 1;
      if (pair.count >= threshold_)
        add_to_queue(&pair, false);
      else
        free_list(&pair);
    }
    new_pairs_.clear();
  }

  void merge_at(uint32_t position, int32_t left, int32_t right, int32_t made) {
    const uint32_t second = position + length(left);
    if (words_[position] != left || words_[second] != right) return;
    const uint32_t before = words_.before(position), after = second + length(right);
    const uint64_t count = words_.count_at(position);
    words_.join(position, second, after, made);
    if (before != 0) {
      states_.at(words_[before], left).count -= count;
      add_pair(before, words_[before], made, count);
    }
    if (words_[after] != JoinedWords::kEnd) {
      states_.at(right, words_[after]).count -= count;
      add_pair(position, made, words_[after], count);
    }
  }

  void add_pair(uint32_t position, int32_t left, int32_t right, uint64_t count) {
    PairState& state = states_.at(left, right);
    state.count += count;
    if (state.is_new == 0) {
      state.is_new = 1;
      new_pairs_.emplace_back(left, right);
      // A pair that waits without a list has other occurrences.
      if (state.list == 0 && state.is_waiting == 0) take_list(&state);
    }
    if (state.list != 0) lists_[state.list].push_back(position);
  }

  // Ranks are those of the last merge of a pair.
  ByteBpe finish() {
    std::vector<std::pair<int32_t, int32_t>> merges;
    std::unordered_map<uint64_t, size_t> last;
    const auto key = [](const std::pair<int32_t, int32_t>& pair) {
      return static_cast<uint64_t>(pair.first) << 32 | static_cast<uint64_t>(pair.second);
    };
    for (size_t i = 0; i < trained_.merges.size(); ++i) last[key(trained_.merges[i])] = i;
    for (size_t i = 0; i < trained_.merges.size(); ++i)
      if (last[key(trained_.merges[i])] == i) merges.push_back(trained_.merges[i]);
    trained_.merges = std::move(merges);
    return std::move(trained_);
  }

  const ByteBpeOptions& options_;
  ByteBpe trained_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<uint32_t> lengths_;  // Of tokens, in bytes.
  JoinedWords words_;
  PairStates states_;
  uint64_t threshold_ = 0;
  std::priority_queue<Queued> queue_;
  std::vector<std::vector<uint32_t>> lists_;  // Positions of pairs; the first is unused.
  std::vector<uint32_t> free_lists_;
  std::vector<std::pair<int32_t, int32_t>> new_pairs_;  // Of the current merge.
};

}  // namespace

ByteBpe train_byte_bpe(WordCounts counts, const ByteBpeOptions& options) {
  return ByteBpeTraining(std::move(counts), options).run();
}

}  // namespace tessera
