// SPDX-License-Identifier: Apache-2.0
#include "inputs/commands/token_survey.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr int64_t kTokensAtATime = 1 << 20;
constexpr int64_t kMostInTable = int64_t{1} << 24;  // A file may claim any max_token_id.

// How often each id occurs.
class IdCounts {
 public:
  explicit IdCounts(int64_t max_token_id)
      : table_(max_token_id < kMostInTable ? static_cast<size_t>(max_token_id) + 1 : 0) {}

  void add(int32_t id) {
    if (table_.empty()) {
      ++sparse_[id];
    } else {
      ++table_[static_cast<size_t>(id)];
    }
  }
  template <typename Visit>
  void each(const Visit& visit) const {
    for (size_t id = 0; id < table_.size(); ++id)
      if (table_[id] > 0) visit(TokenCount{static_cast<int32_t>(id), table_[id]});
    for (const auto& [id, count] : sparse_) visit(TokenCount{id, count});
  }

 private:
  std::vector<int64_t> table_;
  std::unordered_map<int32_t, int64_t> sparse_;
};

// `seq_starts` in order, block by block.
class Starts {
 public:
  explicit Starts(const FlatTokensReader& reader)
      : reader_(reader), count_(reader.num_documents() + 1) {}
  bool at_end() const { return next_ == count_; }
  int64_t take() {
    const auto within = static_cast<size_t>(next_ % kTokensAtATime);
    if (within == 0) {
      block_.resize(static_cast<size_t>(std::min(kTokensAtATime, count_ - next_)));
      reader_.read_starts(next_, block_);
    }
    ++next_;
    return static_cast<int64_t>(block_[within]);
  }

 private:
  const FlatTokensReader& reader_;
  int64_t count_;
  int64_t next_ = 0;
  std::vector<uint64_t> block_;
};

class Surveyor {
 public:
  Surveyor(const FlatTokensReader& reader, const std::string& where)
      : reader_(reader),
        where_(where),
        starts_(reader),
        counts_(reader.max_token_id()),
        document_(starts_.take()) {}

  void run() {
    std::vector<uint32_t> block;
    for (int64_t begin = 0; begin < reader_.num_tokens(); begin += kTokensAtATime) {
      block.resize(static_cast<size_t>(std::min(kTokensAtATime, reader_.num_tokens() - begin)));
      reader_.read(begin, block);
      for (size_t i = 0; i < block.size(); ++i) take(begin + static_cast<int64_t>(i), block[i]);
    }
    while (!starts_.at_end()) next_document();
  }

  TokenSurvey result(const Tokenizer* tokenizer, int64_t most_frequent) const {
    TokenSurvey survey;
    survey.empty = empty_;
    survey.lengths_by_size = lengths_by_size_;
    describe_lengths(&survey);
    std::vector<TokenCount> all;
    counts_.each([&](const TokenCount& one) {
      all.push_back(one);
      const bool has_text = tokenizer != nullptr && one.id < tokenizer->vocab_size();
      if (has_text) survey.bytes += one.count * tokenizer->byte_length(one.id);
    });
    survey.distinct_ids = static_cast<int64_t>(all.size());
    const auto shown = std::min(all.size(), static_cast<size_t>(most_frequent));
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), all.end(),
                      [](const TokenCount& a, const TokenCount& b) {
                        return std::pair(-a.count, a.id) < std::pair(-b.count, b.id);
                      });
    survey.most_frequent.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown));
    return survey;
  }

 private:
  void take(int64_t at, uint32_t encoded) {
    // Of documents without tokens there may be several in one place.
    const bool begins = document_ == at;
    while (document_ == at && !starts_.at_end()) next_document();
    if (is_document_start(encoded) != begins)
      fail("{}: token {} and seq_starts disagree on whether a document begins there", where_, at);
    counts_.add(token_id(encoded));
  }

  // `document_` is where the next one begins.
  void next_document() {
    const int64_t begin = document_;
    document_ = starts_.take();
    const int64_t length = document_ - begin;
    ++lengths_[length];
    if (length == 0) {
      ++empty_;
    } else {
      ++lengths_by_size_[static_cast<size_t>(std::bit_width(static_cast<uint64_t>(length))) - 1];
    }
  }

  void describe_lengths(TokenSurvey* survey) const {
    survey->shortest = lengths_.begin()->first;
    survey->longest = lengths_.rbegin()->first;
    int64_t passed = 0;
    for (const auto& [length, count] : lengths_) {
      passed += count;
      survey->median = length;
      if (passed > reader_.num_documents() / 2) break;
    }
  }

  const FlatTokensReader& reader_;
  const std::string& where_;
  Starts starts_;
  IdCounts counts_;
  // Lengths that differ are few: n of them make up n * n / 2 tokens.
  std::map<int64_t, int64_t> lengths_;
  std::array<int64_t, 64> lengths_by_size_{};
  int64_t empty_ = 0;
  int64_t document_ = 0;
};

}  // namespace

TokenSurvey survey_tokens(const FlatTokensReader& reader, const Tokenizer* tokenizer,
                          int64_t most_frequent, const std::string& where) {
  Surveyor surveyor(reader, where);
  surveyor.run();
  return surveyor.result(tokenizer, most_frequent);
}

}  // namespace tessera
