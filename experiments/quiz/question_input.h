// SPDX-License-Identifier: Apache-2.0
// Generated multiple-choice questions: letters, and candidates for their copy. The rows of a
// question are consecutive, the correct answer first; the others differ from it in one letter.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/indexed_input.h"

namespace tessera {

class QuestionInput final : public IndexedInput {
 public:
  struct HParams {
    using Instance = QuestionInput;
    static constexpr std::string_view kName = "QuestionInput";
    Required<int64_t> global_batch_size;
    int64_t num_questions = 32;
    int64_t num_choices = 4;
    int64_t question_length = 4;  // Also the length of an answer.
    int64_t num_letters = 10;
    int64_t first_letter = 11;  // Its id; the others follow.
    int64_t seed = 1;
    FIELDS(global_batch_size, num_questions, num_choices, question_length, num_letters,
           first_letter, seed)
  };
  explicit QuestionInput(const HParams& p);

  int64_t vocab_size() const override { return p_.first_letter + p_.num_letters; }
  // The question's letters, then those of answer `choice`.
  std::vector<int32_t> tokens(int64_t question, int64_t choice) const;

 private:
  std::optional<int64_t> num_examples() const override { return p_.num_questions * p_.num_choices; }
  void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const override;

  HParams p_;
};

extern template class HolderOf<BaseInput, QuestionInput::HParams>;

}  // namespace tessera
