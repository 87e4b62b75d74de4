// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/decode/prompt_text.h"

#include <memory>
#include <vector>

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/prefetch.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Ids = std::vector<int32_t>;

TEST_CASE("a prompt begins like a document of the training data") {
  const std::unique_ptr<Tokenizer> bytes = make_tokenizer("bytes");
  REQUIRE(bytes->start_id() == 0);
  const PromptText plain(bytes.get(), 0), shifted(bytes.get(), 0, true);
  REQUIRE(plain.prompt_ids("ab") == Ids{98, 99});
  REQUIRE(shifted.prompt_ids("ab") == Ids{0, 98, 99});
  REQUIRE(shifted.prompt_ids("") == Ids{0});
  REQUIRE(shifted.beginning() == Ids{0});
  REQUIRE(plain.beginning() == plain.prompt_ids(""));

  const PromptText numbers(nullptr, 9, true);
  REQUIRE(numbers.prompt_ids("7 8") == Ids{0, 7, 8});
  REQUIRE(numbers.prompt_ids("0 7 8") == Ids{0, 7, 8});  // The prompt gives it.
  REQUIRE(PromptText(nullptr, 9).prompt_ids("7 8") == Ids{7, 8});
}

// A tokenizer without a start token: its start id is the id of "a".
class Letters final : public Tokenizer {
 public:
  Letters() { texts_.resize(26); }
  void encode(std::string_view text, std::vector<int32_t>* ids) const override {
    for (const char letter : text) ids->push_back(letter - 'a');
  }
};

TEST_CASE("a prompt whose text begins with the start id gets the start id, too") {
  const Letters letters;
  REQUIRE(PromptText(&letters, 0, true).prompt_ids("ab") == Ids{0, 0, 1});
  REQUIRE(PromptText(&letters, 0, true).prompt_ids("ba") == Ids{0, 1, 0});
  REQUIRE(PromptText(&letters, 0).prompt_ids("ab") == Ids{0, 1});
}

TEST_CASE("an input says before it is opened whether documents begin with the start id") {
  for (const Labels labels : {Labels::kShiftRight, Labels::kNextToken}) {
    FlatTokensInput::HParams p;
    p.path = "no_such_file.h5";
    p.global_batch_size = 2;
    p.seq_len = 8;
    p.labels = labels;
    const bool expected = labels == Labels::kShiftRight;
    REQUIRE(FlatTokensInput(p).documents_begin_with_start_id() == expected);
    REQUIRE(Prefetch(std::make_unique<FlatTokensInput>(p)).documents_begin_with_start_id() ==
            expected);
  }
}

}  // namespace
}  // namespace tessera
