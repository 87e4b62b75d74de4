// SPDX-License-Identifier: Apache-2.0
// The most frequent pair of adjacent tokens is merged repeatedly. To bound memory, this is done in
// phases: only pairs above a threshold are queued and have lists of their positions. When none is
// left, the next phase has a lower threshold.
#include "inputs/tokenizers/byte_bpe_trainer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <queue>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "core/io/json.h"
#include "inputs/tokenizers/unicode.h"

namespace tessera {
namespace {

using Pair = uint64_t;  // Two adjacent tokens.

Pair pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
}
int32_t left_of(Pair pair) { return static_cast<int32_t>(pair >> 32); }
int32_t right_of(Pair pair) { return static_cast<int32_t>(pair & 0xffffffff); }

struct PairState {
  // How often the pair occurs, as BpeTrainer counts: merging the pair itself does not reduce it.
  uint64_t count : 63 = 0;
  uint64_t is_waiting : 1 = 0;  // It will be merged if it becomes the most frequent one.
};

// All distinct words in one array, with a slot for each byte. A token is in its first slot; the
// last slot of several holds minus their number, so that a token's neighbours are found both ways.
class JoinedWords {
 public:
  static constexpr int32_t kEnd = std::numeric_limits<int32_t>::min();  // Between words.
  static constexpr int32_t kInside = kEnd + 1;

  JoinedWords(const WordCounts& words, const std::array<int32_t, 256>& byte_ids) {
    std::unordered_map<int64_t, size_t> places;  // Where to write the next word of a count.
    for (const auto& [word, count] : words) places[count] += word.size() + 1;
    size_t size = 1;
    for (auto& [count, place] : places) {
      groups_.emplace_back(size, count);
      size += std::exchange(place, size);
    }
    if (size > std::numeric_limits<uint32_t>::max())
      fail("the distinct words have {} bytes, expected less than 2^32; train on a sample", size);
    slots_.assign(size, kEnd);
    for (const auto& [word, count] : words) {
      size_t& place = places[count];
      for (const char c : word) slots_[place++] = byte_ids[static_cast<unsigned char>(c)];
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
    for_each_pair([&](uint32_t, Pair pair, uint64_t count) {
      PairState& state = states_[pair];
      state.count += count;
      state.is_waiting = 1;
    });
  }

  ByteBpe run() {
    while (begin_phase())
      while (!queue_.empty()) {
        if (std::ssize(trained_.vocabulary) >= options_.vocab_size) return finish();
        const auto [queued_count, inverse] = queue_.top();
        queue_.pop();
        const Pair pair = ~inverse;
        PairState& state = states_[pair];
        const uint64_t count = state.count;
        if (state.is_waiting == 0 || count < threshold_) continue;
        if (count != queued_count) {
          queue_.emplace(count, ~pair);
          continue;
        }
        if (static_cast<int64_t>(count) < options_.min_frequency) return finish();
        state.is_waiting = 0;
        merge(pair);
      }
    return finish();
  }

 private:
  using Positions = std::unordered_map<Pair, std::vector<uint32_t>>;

  // Special tokens and bytes, in the order of their characters. Returns the ids of bytes.
  std::array<int32_t, 256> add_first_tokens() {
    for (const std::string& token : options_.special_tokens) id_of(token);
    std::map<std::string, size_t> bytes;
    for (size_t byte = 0; byte < 256; ++byte)
      bytes[byte_level_encode(std::string(1, static_cast<char>(byte)))] = byte;
    std::array<int32_t, 256> ids{};
    for (const auto& [character, byte] : bytes) ids[byte] = id_of(character);
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
    for (uint32_t at = 1; at < words_.size(); ++at) {
      const uint64_t count = words_.count_at(at);
      while (words_[at] >= 0) {
        const uint32_t next = at + length(words_[at]);
        if (words_[next] >= 0) take(at, pair_of(words_[at], words_[next]), count);
        at = next;
      }
    }
  }

  // Queues the most frequent pairs; false if none is left.
  bool begin_phase() {
    constexpr uint64_t kRange = 16;  // The counts of a phase differ by less than this factor.
    std::erase_if(states_, [](const auto& each) { return each.second.count == 0; });
    positions_.clear();
    uint64_t most = 0;
    for (const auto& [pair, state] : states_)
      if (state.is_waiting != 0) most = std::max<uint64_t>(most, state.count);
    threshold_ = std::max<uint64_t>(1, most / kRange);
    for (const auto& [pair, state] : states_)
      if (state.is_waiting != 0 && state.count >= threshold_) {
        queue_.emplace(uint64_t{state.count}, ~pair);
        positions_[pair];
      }
    for_each_pair([&](uint32_t at, Pair pair, uint64_t) {
      if (const auto found = positions_.find(pair); found != positions_.end())
        found->second.push_back(at);
    });
    return most > 0;
  }

  void merge(Pair pair) {
    const int32_t left = left_of(pair), right = right_of(pair);
    const auto name = [&](int32_t id) { return trained_.vocabulary[static_cast<size_t>(id)]; };
    const int32_t made = id_of(name(left) + name(right));
    lengths_.resize(trained_.vocabulary.size());
    lengths_[static_cast<size_t>(made)] = length(left) + length(right);
    trained_.merges.push_back(pair);
    std::vector<uint32_t> positions = std::move(positions_[pair]);
    positions_.erase(pair);
    if (!std::ranges::is_sorted(positions)) std::ranges::sort(positions);
    for (const uint32_t position : positions) merge_at(position, left, right, made);
    for (auto& [new_pair, its_positions] : new_positions_) add_pair(new_pair, &its_positions);
    new_positions_.clear();
  }

  void merge_at(uint32_t position, int32_t left, int32_t right, int32_t made) {
    const uint32_t second = position + length(left);
    if (words_[position] != left || words_[second] != right) return;
    const uint32_t before = words_.before(position), after = second + length(right);
    const uint64_t count = words_.count_at(position);
    const auto change = [&](int32_t old_left, int32_t old_right, uint32_t at, Pair pair) {
      states_[pair_of(old_left, old_right)].count -= count;
      states_[pair].count += count;
      new_positions_[pair].push_back(at);
    };
    words_.join(position, second, after, made);
    if (before != 0) change(words_[before], left, before, pair_of(words_[before], made));
    if (words_[after] != JoinedWords::kEnd)
      change(right, words_[after], position, pair_of(made, words_[after]));
  }

  // Queues a pair of which the last merge made occurrences.
  void add_pair(Pair pair, std::vector<uint32_t>* new_positions) {
    PairState& state = states_[pair];
    if (state.count == 0) return;
    const auto found = positions_.find(pair);
    // Else it waits for a later phase, with other occurrences.
    const bool is_complete = state.is_waiting == 0 || found != positions_.end();
    state.is_waiting = 1;
    if (state.count < threshold_) {
      positions_.erase(pair);
    } else if (!is_complete) {
      threshold_ = state.count + 1;  // Ends this phase before it is merged.
    } else {
      if (found == positions_.end())
        positions_.emplace(pair, std::move(*new_positions));
      else
        found->second.insert(found->second.end(), new_positions->begin(), new_positions->end());
      queue_.emplace(uint64_t{state.count}, ~pair);
    }
  }

  // BpeTrainer may merge a pair twice; the last rank counts.
  ByteBpe finish() {
    std::unordered_set<Pair> later;
    std::vector<Pair>& merges = trained_.merges;
    std::ranges::reverse(merges);
    std::erase_if(merges, [&](Pair pair) { return !later.insert(pair).second; });
    std::ranges::reverse(merges);
    return std::move(trained_);
  }

  const ByteBpeOptions& options_;
  ByteBpe trained_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<uint32_t> lengths_;  // Bytes of tokens.
  JoinedWords words_;
  std::unordered_map<Pair, PairState> states_;
  uint64_t threshold_ = 0;
  // Counts, perhaps outdated, and inverses of pairs: of equal counts the smallest pair comes first.
  std::priority_queue<std::pair<uint64_t, uint64_t>> queue_;
  Positions positions_;      // All occurrences of queued pairs.
  Positions new_positions_;  // What the current merge makes.
};

}  // namespace

ByteBpe train_byte_bpe(WordCounts counts, const ByteBpeOptions& options) {
  return ByteBpeTraining(std::move(counts), options).run();
}

std::string tokenizer_json(const ByteBpe& model, const std::vector<std::string>& special_tokens,
                           WordPattern pattern) {
  int64_t id = 0;
  const auto added = [&](const std::string& token) {
    return fmt::format(
        R"({{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,)"
        R"("normalized":false,"special":true}})",
        id++, json_quoted(token));
  };
  const auto name = [&](int32_t of) {
    return json_quoted(model.vocabulary[static_cast<size_t>(of)]);
  };
  const auto merge = [&](Pair pair) {
    return fmt::format("[{},{}]", name(left_of(pair)), name(right_of(pair)));
  };
  std::string vocabulary;
  for (const std::string& token : model.vocabulary)
    vocabulary += fmt::format("{}{}:{}", vocabulary.empty() ? "" : ",", json_quoted(token),
                              &token - model.vocabulary.data());
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":{},"normalizer":null,)"
      R"("pre_tokenizer":{{"type":"Sequence","pretokenizers":[{{"type":"Split","pattern":)"
      R"({{"Regex":{}}},"behavior":"Isolated","invert":false}},{{"type":"ByteLevel",)"
      R"("add_prefix_space":false,"trim_offsets":true,"use_regex":false}}]}},)"
      R"("post_processor":null,"decoder":{{"type":"ByteLevel","add_prefix_space":true,)"
      R"("trim_offsets":true,"use_regex":true}},"model":{{"type":"BPE","dropout":null,)"
      R"("unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,)"
      R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{{{}}},)"
      R"("merges":{}}}}})",
      json_list(special_tokens, added, ","), json_quoted(pattern_source(pattern)), vocabulary,
      json_list(model.merges, merge, ","));
}

}  // namespace tessera
