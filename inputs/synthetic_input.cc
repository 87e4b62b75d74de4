// SPDX-License-Identifier: Apache-2.0
#include "inputs/synthetic_input.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "inputs/shuffle.h"

namespace tessera {

REGISTER_TEMPLATE(BaseInput, SyntheticInput);

namespace {

constexpr int32_t kSeparator = 6;
constexpr int32_t kFirstNumber = 7;
constexpr int64_t kNumTasks = 5;  // Without kMixed.

// Returns the random numbers of one sequence.
RandomDraws draws_of(uint64_t seed, int64_t index) {
  return RandomDraws(mix_bits(static_cast<uint64_t>(index), mix_bits(seed, 0x73796e7468u)));
}

// Builds one sequence of `length` tokens.
class Builder {
 public:
  Builder(const SyntheticInput::HParams& p, int64_t length, RandomDraws draws)
      : p_(p), length_(length), draws_(draws) {}

  SyntheticInput::Sequence build() {
    SyntheticTask task = p_.task;
    if (task == SyntheticTask::kMixed) {
      const int64_t drawn = draws_.below(kNumTasks);
      task = static_cast<SyntheticTask>(drawn);
      push(static_cast<int32_t>(drawn + 1), false);
    }
    switch (task) {
      case SyntheticTask::kCopy:
        copy(p_.distance);
        break;
      case SyntheticTask::kStatedCopy: {
        const int64_t distance = 1 + draws_.below(p_.distance);
        push(static_cast<int32_t>(kFirstNumber + distance - 1), false);
        copy(distance);
        break;
      }
      case SyntheticTask::kHiddenCopy:
        copy(1 + draws_.below(p_.distance));
        break;
      case SyntheticTask::kReversal:
        reversal();
        break;
      case SyntheticTask::kGaussians:
        while (room() > 0) push(gaussian_letter(), false);
        break;
      case SyntheticTask::kMixed:
        CHECK(false);
    }
    return std::move(sequence_);
  }

 private:
  int64_t room() const { return length_ - static_cast<int64_t>(sequence_.tokens.size()); }
  int32_t first_letter() const { return static_cast<int32_t>(kFirstNumber + p_.distance); }
  int32_t letter() { return first_letter() + static_cast<int32_t>(draws_.below(p_.num_letters)); }
  void push(int32_t token, bool determined) {
    if (room() == 0) return;
    sequence_.tokens.push_back(token);
    sequence_.determined.push_back(determined);
  }
  // With a hidden distance, even a perfect model can err in the first repetition.
  void copy(int64_t distance) {
    const size_t begin = sequence_.tokens.size();
    for (int64_t i = 0; room() > 0; ++i) {
      const bool repeats = i >= distance;
      push(repeats ? sequence_.tokens[begin + static_cast<size_t>(i - distance)] : letter(),
           repeats);
    }
  }
  void reversal() {
    const int64_t count = (room() - 1) / 2;
    const size_t begin = sequence_.tokens.size();
    for (int64_t i = 0; i < count; ++i) push(letter(), false);
    push(kSeparator, true);
    for (int64_t i = count; i-- > 0;) push(sequence_.tokens[begin + static_cast<size_t>(i)], true);
  }
  int32_t gaussian_letter() {
    const int64_t component = draws_.below(3);
    const double centre =
        static_cast<double>(p_.num_letters) * (1.0 + static_cast<double>(component)) / 4.0;
    const double value = centre + draws_.normal() * static_cast<double>(p_.num_letters) / 16.0;
    const auto letter =
        std::clamp<int64_t>(static_cast<int64_t>(std::floor(value)), 0, p_.num_letters - 1);
    return first_letter() + static_cast<int32_t>(letter);
  }

  const SyntheticInput::HParams& p_;
  int64_t length_;
  RandomDraws draws_;
  SyntheticInput::Sequence sequence_;
};

}  // namespace

SyntheticInput::SyntheticInput(const HParams& p) : IndexedInput(example_stream(p)), p_(p) {
  if (p.distance >= stream().seq_len)
    fail("SyntheticInput: distance is {}; expected 1 to seq_len - 1 = {}", p.distance,
         stream().seq_len - 1);
}

int64_t SyntheticInput::vocab_size() const { return kFirstNumber + p_.distance + p_.num_letters; }

SyntheticInput::Sequence SyntheticInput::sequence(int64_t index) const {
  return Builder(p_, stream().seq_len, draws_of(stream().seed, index)).build();
}

void SyntheticInput::fill_example(int64_t, int64_t index, const TokenRow& row) const {
  const Sequence made = sequence(index);
  fill_document(made.tokens, row);
  for (size_t i = 0; i < made.tokens.size(); ++i)
    row.weights[i] = made.determined[i] || p_.score_all ? 1.0f : 0.0f;
}

}  // namespace tessera
