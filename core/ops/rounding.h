// SPDX-License-Identifier: Apache-2.0
// Rounding of optimizer state that is stored in bf16. Rounding to nearest loses every change of a
// running mean below half a unit in the last place; stochastic rounding keeps it on average.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

enum class Rounding {
  kNearest,     // To nearest, ties to even: a cast.
  kStochastic,  // Up or down with probabilities that make the mean exact (Gupta et al., 2015).
};

// The 16 bits of an element's 32 random bits that are its noise.
enum class NoiseHalf : int64_t { kLow, kHigh };
// The noise of a stream: a suffix of the parameter's path, and the half.
struct Noise {
  std::string_view stream = "";
  NoiseHalf half = NoiseHalf::kLow;
};

// Rounds x (f32) to bf16 stochastically. The random bits of an element are a pure function of
// (seed, traced path, noise, global element index, count), so they do not depend on the mesh.
// `count`: a whole number in f32, scalar. Element i of layer l of a stack is element l·n + i, n
// being the elements of a layer, in stacked and in unrolled weights.
Tensor stochastic_round(Operand x, Operand count, const Noise& noise);

// Returns the attributes of an op that rounds tensors of this type stochastically: the seed, the
// stream, and the number of the first element.
Attributes noise_attributes(const Type& type, std::string_view stream);
// Returns whether a node rounds stochastically, and so depends on the position of its shard.
bool rounds_stochastically(const Node& node);

namespace key {
inline constexpr AttributeName<NoiseHalf> kHalf{"half"};
// Lowering adds this to such a node besides `origin` and `extent` (core/ops/reshard.h) if its
// leading axis is that of layers in pieces: the global index of each row of the shard, in place of
// the origin along this axis.
inline constexpr AttributeName<std::vector<int64_t>> kRows{"rows"};
}  // namespace key
extern const Op kStochasticRoundOp;

}  // namespace tessera
