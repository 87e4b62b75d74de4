// SPDX-License-Identifier: Apache-2.0
#include "experiments/quiz/question_input.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/hparams/template.h"
#include "inputs/shuffle.h"

namespace tessera {

template class HolderOf<BaseInput, QuestionInput::HParams>;

namespace {

const TemplateRegistrar<BaseInput, QuestionInput> kRegisterQuestionInput;

ExampleStream stream_of(const QuestionInput::HParams& p) {
  return {.name = "questions",
          .global_batch_size = p.global_batch_size.get(),
          .seq_len = 2 * p.question_length,
          .seed = static_cast<uint64_t>(p.seed)};
}

}  // namespace

QuestionInput::QuestionInput(const HParams& p) : IndexedInput(stream_of(p)), p_(p) {
  if (p.num_questions < 1)
    fail("QuestionInput: num_questions is {}; expected at least 1", p.num_questions);
  if (p.num_choices < 2)
    fail("QuestionInput: num_choices is {}; expected at least 2", p.num_choices);
  if (p.num_letters < 2)
    fail("QuestionInput: num_letters is {}; expected at least 2, for answers to differ",
         p.num_letters);
  if (p.num_choices - 1 > p.question_length * (p.num_letters - 1))
    fail("QuestionInput: num_choices is {}, but only {} answers differ in one letter",
         p.num_choices, 1 + p.question_length * (p.num_letters - 1));
}

std::vector<int32_t> QuestionInput::tokens(int64_t question, int64_t choice) const {
  const auto draw = [&](int64_t what) {
    const uint64_t key = mix_bits(static_cast<uint64_t>(question), stream().seed);
    return static_cast<int64_t>(mix_bits(static_cast<uint64_t>(what), key) >> 1);
  };
  std::vector<int32_t> letters;
  for (int64_t i = 0; i < p_.question_length; ++i)
    letters.push_back(static_cast<int32_t>(draw(i) % p_.num_letters));
  std::vector<int32_t> answer = letters;
  if (choice > 0) {
    // One of the answers with one wrong letter, a different one for each choice.
    const int64_t wrong_answers = p_.question_length * (p_.num_letters - 1);
    const int64_t which = (draw(p_.question_length) % wrong_answers + choice) % wrong_answers;
    int32_t& letter = answer[static_cast<size_t>(which % p_.question_length)];
    const int64_t shift = 1 + which / p_.question_length;
    letter = static_cast<int32_t>((letter + shift) % p_.num_letters);
  }
  letters.insert(letters.end(), answer.begin(), answer.end());
  for (int32_t& letter : letters) letter += static_cast<int32_t>(p_.first_letter);
  return letters;
}

void QuestionInput::fill_example(int64_t, int64_t index, const TokenRow& row) const {
  const std::vector<int32_t> all = tokens(index / p_.num_choices, index % p_.num_choices);
  clear_row(row);
  for (size_t i = 0; i < all.size(); ++i) {
    row.labels[i] = all[i];
    row.ids[i] = i == 0 ? 0 : all[i - 1];
    row.weights[i] = i < all.size() / 2 ? 0.0f : 1.0f;  // Only the answer is scored.
    row.paddings[i] = 0.0f;
    row.segment_ids[i] = 1;
    row.segment_pos[i] = static_cast<int32_t>(i);
  }
}

}  // namespace tessera
