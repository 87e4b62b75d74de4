// SPDX-License-Identifier: Apache-2.0
// The inputs of a model: Features, its batch, and FpropScope, everything that is not an argument of
// fprop: weights, mode, step and decode cache. The model's caller (a task, a test) makes both.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "layers/decode_state.h"

namespace tessera {

enum class Mode { kTrain, kEval };

// A batch in the traced graph. (Host arrays are in inputs/.)
struct Features {
  // ids, labels, weights, segment_ids, segment_pos ["batch seq"], … without the prefix "batch/".
  std::map<std::string, Tensor, std::less<>> tensors;
  Mode mode = Mode::kTrain;
  Tensor step;  // i32 scalar, seeds dropout; may be invalid if nothing is random.

  const Tensor& get(std::string_view name) const;  // Error if absent, with the names present.
  Tensor find(std::string_view name) const;        // Invalid if absent.
};

class FpropScope {
 public:
  // `parameters` from parameter_inputs, or other tensors of the same types and order (an average of
  // the weights, for example). With a cache the model decodes; with cast weights, Layer::param
  // reads those where it needs a dtype other than the parameter's. Both must outlive the scope.
  // Scopes nest.
  FpropScope(std::vector<Tensor> parameters, const Features& features, DecodeCache* cache = nullptr,
             CastWeights* cast_weights = nullptr);
  ~FpropScope();
  FpropScope(const FpropScope&) = delete;
  FpropScope& operator=(const FpropScope&) = delete;

  static const FpropScope& current();  // CHECKs that a scope is open.
  static bool decodes();               // Whether a scope with a cache is open.

  const Tensor& parameter(int32_t index) const;
  Mode mode() const { return mode_; }
  const Tensor& step() const { return step_; }                 // i32 scalar; invalid if not given.
  CastWeights* cast_weights() const { return cast_weights_; }  // Null: cast at each use.
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
