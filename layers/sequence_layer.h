// SPDX-License-Identifier: Apache-2.0
// A layer over a sequence's hidden states that may need to know which tokens belong together:
// attention, transformer blocks, and stacks of them.
#pragma once

#include "layers/layer.h"

namespace tessera {

// What a packed batch says of its tokens.
struct SequenceInfo {
  Tensor segment_ids;  // i32["batch seq"]; invalid: each row is one segment.
  Tensor positions;    // i32["batch seq"] or ["seq"], from 0: for rotary embeddings.
};

class SequenceLayer : public Layer {
 public:
  // x["batch seq embed"] -> the same type.
  virtual Tensor fprop(Tensor x, const SequenceInfo& sequence) const = 0;

 protected:
  using Layer::Layer;
};

}  // namespace tessera
