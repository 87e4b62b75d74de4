// SPDX-License-Identifier: Apache-2.0
#include "experiments/seqax/synthetic_tasks.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace tessera {

REGISTER_TEMPLATE(BaseInput, SeqaxTasks);

namespace {

constexpr int64_t kLetters = 10;
constexpr int64_t kLargestDraw = 100;  // Bound of the numbers of task 5.
constexpr uint64_t kHeldOut = 0x76616c6964u;

ExampleStream stream_of(const SeqaxTasks::HParams& p) {
  return {.name = p.split,
          .global_batch_size = p.global_batch_size.get(),
          .seq_len = p.seq_len.get(),
          .seed = static_cast<uint64_t>(p.seed),
          .shuffle = p.shuffle ? Shuffle::kFull : Shuffle::kNone,
          .repeat = p.repeat};
}

uint32_t letter(RandomDraws& draws) { return static_cast<uint32_t>(1 + draws.below(kLetters)); }

// Returns `length` letters that repeat with period `distance`.
std::vector<uint32_t> repeating(int64_t length, int64_t distance, RandomDraws& draws) {
  std::vector<uint32_t> tokens;
  for (int64_t i = 0; i < length; ++i)
    tokens.push_back(i < distance ? letter(draws) : tokens[static_cast<size_t>(i - distance)]);
  return tokens;
}

std::vector<uint32_t> gaussian_draws(int64_t length, RandomDraws& draws) {
  double centres[3], deviations[3];
  for (double& centre : centres) centre = static_cast<double>(kLargestDraw) * draws.uniform();
  for (double& deviation : deviations) deviation = 1.0 + 3.0 * draws.uniform();
  std::vector<uint32_t> tokens;
  for (int64_t i = 0; i < length; ++i) {
    const int64_t which = draws.below(3);
    const double drawn = std::round(centres[which] + deviations[which] * draws.normal());
    tokens.push_back(
        static_cast<uint32_t>(std::clamp(drawn, 1.0, static_cast<double>(kLargestDraw))));
  }
  return tokens;
}

// Returns one sequence of `length` tokens of the task (1 to 5), drawn from a stream of random
// numbers.
std::vector<uint32_t> seqax_sequence(int64_t task, int64_t length, RandomDraws& draws) {
  std::vector<uint32_t> tokens = {static_cast<uint32_t>(task)};
  const int64_t room = length - 1;
  const auto append = [&](const std::vector<uint32_t>& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  const auto distance = [&] {
    const int64_t least = std::max<int64_t>(1, room / 4);
    return least + draws.below(room - least + 1);
  };
  if (room == 0) return tokens;
  switch (task) {
    case 1:
      append(repeating(room, (room + 1) / 2, draws));
      break;
    case 2: {
      std::vector<uint32_t> letters = repeating((room + 1) / 2, room, draws);
      append(letters);
      std::reverse(letters.begin(), letters.end());
      append(letters);
      tokens.resize(static_cast<size_t>(length));
      break;
    }
    case 3: {
      const int64_t stated = distance();
      append({static_cast<uint32_t>(stated)});
      append(repeating(room - 1, stated, draws));
      break;
    }
    case 4:
      append(repeating(room, distance(), draws));
      break;
    case 5:
      append(gaussian_draws(room, draws));
      break;
    default:
      fail("SeqaxTasks: task is {}, expected 1 to 5", task);
  }
  return tokens;
}

}  // namespace

SeqaxTasks::SeqaxTasks(const HParams& p) : IndexedInput(stream_of(p)), max_length_(p.max_length) {
  if (p.split != "train" && p.split != "validation")
    fail("SeqaxTasks: split is '{}'; expected train or validation", p.split);
  if (p.max_length < kLargestDraw)
    fail("SeqaxTasks: max_length is {}; expected at least {}", p.max_length, kLargestDraw);
  const uint64_t key = mix_bits(static_cast<uint64_t>(p.seed), p.split == "train" ? 0 : kHeldOut);
  for (int64_t i = 0; i < p.num_sequences; ++i) {
    RandomDraws draws(mix_bits(static_cast<uint64_t>(i), key));
    // Each sequence is a prefix of one of full length.
    const int64_t task = 1 + draws.below(5), length = 1 + draws.below(p.max_length);
    std::vector<uint32_t> tokens = seqax_sequence(task, p.max_length, draws);
    tokens.resize(static_cast<size_t>(length));
    for (size_t j = 0; j < tokens.size(); ++j) encoded_.push_back(2 * tokens[j] + (j == 0 ? 1 : 0));
  }
  if (*num_examples() < 1)
    fail("SeqaxTasks: {} tokens are less than one row of seq_len={}", encoded_.size(),
         stream().seq_len);
}

std::optional<int64_t> SeqaxTasks::num_examples() const {
  return static_cast<int64_t>(encoded_.size()) / stream().seq_len;
}

void SeqaxTasks::fill_example(int64_t, int64_t index, const TokenRow& row) const {
  const auto length = static_cast<size_t>(stream().seq_len);
  const auto begin = static_cast<size_t>(index) * length;
  fill_row(Labels::kShiftRight, std::span(encoded_).subspan(begin, length), row);
}

}  // namespace tessera
