// SPDX-License-Identifier: Apache-2.0
// What a model's fprop needs beside its arguments: the tensors that stand for its weights, whether
// it trains, the step that keys dropout, and the cache if it decodes. Opened by whoever calls the
// model (a task, a test).
#pragma once

#include <vector>

#include "core/graph/tensor.h"
#include "layers/cast_weights.h"
#include "layers/decode_cache.h"
#include "layers/features.h"

namespace tessera {

class FpropScope {
 public:
  // `parameters` as parameter_inputs gives them, or other tensors of the same types and order (an
  // average of the weights, say). Mode and step are the features'. With a cache, which outlives
  // the scope, the model decodes; with cast weights, those are read where another dtype than the
  // parameter's is asked for. Scopes nest.
  FpropScope(std::vector<Tensor> parameters, const Features& features, DecodeCache* cache = nullptr,
             CastWeights* cast_weights = nullptr);
  ~FpropScope();
  FpropScope(const FpropScope&) = delete;
  FpropScope& operator=(const FpropScope&) = delete;

  static const FpropScope& current();  // CHECKs that there is one.
  static bool decodes();               // Whether there is one, with a cache.

  const Tensor& parameter(int32_t index) const;
  Mode mode() const { return mode_; }
  const Tensor& step() const { return step_; }  // i32 scalar; invalid if none was given.
  CastWeights* cast_weights() const { return cast_weights_; }  // Null: cast where they are used.
  DecodeCache* cache() const { return cache_; }  // Null: whole sequences, from position 0.

 private:
  std::vector<Tensor> parameters_;
  Mode mode_;
  Tensor step_;
  DecodeCache* cache_;
  CastWeights* cast_weights_;
  const FpropScope* outer_;
};

}  // namespace tessera
