// SPDX-License-Identifier: Apache-2.0
#include "inputs/shuffle.h"

#include <algorithm>
#include <span>

#include "core/base/crc32c.h"
#include "core/base/error.h"

namespace tessera {

uint64_t mix_bits(uint64_t word, uint64_t key) {
  word = (word ^ key) + 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

double RandomDraws::normal() {
  double sum = -6.0;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum;
}

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t epoch) : size_(size) {
  CHECK(size >= 1 && size <= int64_t{1} << 60, "permutation of {} indices", size);
  while ((uint64_t{1} << (2 * half_bits_)) < static_cast<uint64_t>(size)) ++half_bits_;
  const uint64_t key = mix_bits(epoch, mix_bits(seed, 0x7065726d75746174u));
  for (int round = 0; round < kRounds; ++round)
    keys_[round] = mix_bits(static_cast<uint64_t>(round), key);
}

uint64_t Permutation::feistel(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t key : keys_) {
    const uint64_t next = left ^ (mix_bits(right, key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator()(int64_t index) const {
  CHECK(index >= 0 && index < size_, "index {} of {}", index, size_);
  // Cycle walking (Black and Rogaway, 2002): the domain of the network is less than four times
  // size_, so fewer than four steps are expected.
  uint64_t value = static_cast<uint64_t>(index);
  do value = feistel(value);
  while (value >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(value);
}

namespace {

constexpr uint64_t kEraKey = 0x657261u;

}  // namespace

RowOrder::RowOrder(Shuffle shuffle, int64_t era_length, uint64_t seed,
                   const std::vector<int64_t>& part_sizes)
    : shuffle_(shuffle), era_length_(era_length), seed_(seed) {
  CHECK(shuffle != Shuffle::kEra || era_length >= 1, "eras of {} rows", era_length);
  for (const int64_t size : part_sizes) ends_.push_back(this->size() + size);
}

int64_t RowOrder::operator()(int64_t epoch, int64_t place) const {
  CHECK(place >= 0 && place < size(), "place {} of {}", place, size());
  const auto number = static_cast<uint64_t>(epoch);
  switch (shuffle_) {
    case Shuffle::kNone:
      return place;
    case Shuffle::kFull:
      return Permutation(size(), seed_, number)(place);
    case Shuffle::kEra: {
      const auto end = std::upper_bound(ends_.begin(), ends_.end(), place);
      const int64_t begin = end == ends_.begin() ? 0 : *std::prev(end);
      const int64_t era = begin + (place - begin) / era_length_ * era_length_;
      // The key is the era's first row, which later files do not change.
      const uint64_t key = mix_bits(static_cast<uint64_t>(era), mix_bits(seed_, kEraKey));
      return era + Permutation(std::min(era_length_, *end - era), key, number)(place - era);
    }
  }
  CHECK(false, "shuffle {}", static_cast<int>(shuffle_));
  return 0;
}

ShardOrder::ShardOrder(int64_t shards, int64_t rows, std::optional<uint64_t> seed)
    : shards_(shards), rows_(rows), parts_((rows + shards - 1) / shards), seed_(seed) {
  CHECK(shards >= 1 && rows >= 1, "{} shards for {} rows", shards, rows);
}

ShardOrder::Unit ShardOrder::operator()(int64_t number) const {
  const int64_t units = units_per_epoch();
  const int64_t epoch = number / units;
  int64_t index = number % units;
  if (seed_) index = Permutation(units, *seed_, static_cast<uint64_t>(epoch))(index);
  // Neighbouring rows begin in different shards.
  return {epoch, index % shards_, index / shards_};
}

bool in_validation_split(std::string_view text, double fraction) {
  if (fraction <= 0.0) return false;
  const uint64_t hash = mix_bits(crc32c(std::as_bytes(std::span(text))), text.size());
  return static_cast<double>(hash >> 11) * 0x1p-53 < fraction;
}

}  // namespace tessera
