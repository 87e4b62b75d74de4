// SPDX-License-Identifier: Apache-2.0
// Shuffling with random access and no tables: pseudo-random permutations, the order of the rows of
// a set, and the assignment of shards to the rows of a batch. All are pure functions of (seed,
// epoch, index), so a run resumes at any position at once. And the choice of the validation split.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tessera {

class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, uint64_t epoch);
  int64_t size() const { return size_; }
  int64_t operator()(int64_t index) const;

 private:
  // Four rounds give a strong pseudo-random permutation of a large domain (Luby and Rackoff, 1988);
  // more rounds mix small domains better.
  static constexpr int kRounds = 8;
  uint64_t feistel(uint64_t value) const;

  int64_t size_ = 0;
  std::array<uint64_t, kRounds> keys_{};
  int half_bits_ =
      1;  // The network permutes [0, 4^half_bits_), the smallest such domain that contains size_.
};

// Hashes a word and a key by the finaliser of splitmix64 (Steele et al., OOPSLA'14).
uint64_t mix_bits(uint64_t word, uint64_t key);

// A stream of random numbers from a key, equal on every machine.
class RandomDraws {
 public:
  explicit RandomDraws(uint64_t key) : key_(key) {}
  uint64_t bits() { return mix_bits(count_++, key_); }
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(bits() % static_cast<uint64_t>(limit));
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // In [0, 1).
  double normal();  // The sum of twelve uniforms minus six, independent of the math library.

 private:
  uint64_t key_;
  uint64_t count_ = 0;
};

// The order of the rows of a set, as in Levanter.
enum class Shuffle {
  kNone,  // In file order.
  kFull,  // One permutation of all rows per epoch.
  // Consecutive eras of era_length rows, each permuted. An era does not span two files, so adding
  // files does not change the order of existing rows.
  kEra,
};

class RowOrder {
 public:
  // `part_sizes`: the number of rows of each file, in order.
  RowOrder(Shuffle shuffle, int64_t era_length, uint64_t seed,
           const std::vector<int64_t>& part_sizes);

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  // Returns the row at `place` in an epoch.
  int64_t operator()(int64_t epoch, int64_t place) const;

 private:
  Shuffle shuffle_;
  int64_t era_length_;
  uint64_t seed_;
  std::vector<int64_t> ends_;  // Cumulative part sizes.
};

// Assigns shards of text to the rows of a batch. A unit is a shard; with fewer shards than rows,
// every parts-th document of a shard. Row r reads units r, r + rows, r + 2 rows, …, counted over
// epochs, so that rows share units evenly and no unit is read twice.
class ShardOrder {
 public:
  struct Unit {
    int64_t epoch = 0;
    int64_t shard = 0;
    int64_t part = 0;  // Documents with this number modulo parts().
  };

  // With a seed, shuffles the units of each epoch.
  ShardOrder(int64_t shards, int64_t rows, std::optional<uint64_t> seed);

  int64_t rows() const { return rows_; }
  int64_t parts() const { return parts_; }
  int64_t units_per_epoch() const { return shards_ * parts_; }
  Unit operator()(int64_t number) const;  // Counted over epochs.

 private:
  int64_t shards_;
  int64_t rows_;
  int64_t parts_;
  std::optional<uint64_t> seed_;
};

// Returns whether a document belongs to the validation split, which holds about `fraction` of all
// distinct texts. The text alone decides, so the split does not depend on order, shard layout or
// format, and equal documents are in the same split. For whole files `text` is the file's name
// (TextFile::name), so no file changes its split when others are added.
bool in_validation_split(std::string_view text, double fraction);

}  // namespace tessera
