// SPDX-License-Identifier: Apache-2.0
// The inputs of a model besides the arguments of fprop. Features are its batch. FpropScope gives
// the weights, mode and step, which tokens are padding, and in decoding the state of the traced
// graph: DecodeCache, the data that layers keep of earlier tokens, and CastWeights, the weights in
// the compute dtype. The model's caller (a task, a test) makes them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/graph/rules.h"
#include "core/graph/trace.h"
#include "layers/parameter.h"

namespace tessera {

enum class Mode { kTrain, kEval };

// A batch in the traced graph. (Host arrays are in inputs/.)
struct Features {
  // ids, labels, weights, segment_ids, segment_pos ["batch seq"], … without the prefix "batch/".
  std::map<std::string, Tensor, std::less<>> tensors;
  Mode mode = Mode::kTrain;
  Tensor step;  // i32 scalar, seeds dropout; may be invalid if nothing is random.
  // What training optimises: metrics and their factors. Null or empty: the model's loss.
  const std::map<std::string, double>* losses = nullptr;
  // Labels are drawn from what the model predicts (BaseModel::draws_labels).
  bool draws_labels = false;

  const Tensor& get(std::string_view name) const;  // Error if absent, with the names present.
  Tensor find(std::string_view name) const;        // Invalid if absent.
};

// Keys and values, which attention layers read and extend, and the state of other layers. While an
// FpropScope has a cache the model decodes: the batch is a few new tokens of each row, each row at
// its own position.
class DecodeCache {
 public:
  // Makes a cache for the graph being traced. `starts` i32["batch"]: the position of each row's
  // first new token; new tokens at negative positions are padding. `last` i32["batch"]: the index
  // of each row's last new token; -1 if it has none. Tokens after it are padding. `tokens`
  // i32["batch"]: the number of tokens in each row, new ones included; during prefill, in the whole
  // prompt. `length`: the number of cached positions. `name` distinguishes the caches of one
  // executor. `encodes`: whether the batch has the tokens of an encoder, for rows with new tokens;
  // false: they are zeros, and the rows continue with what kept() has of them.
  DecodeCache(Tensor starts, Tensor last, Tensor tokens, int64_t length, std::string_view name = "",
              bool encodes = true);
  DecodeCache& operator=(DecodeCache&&) = delete;  // Neither copied nor moved.

  int64_t length() const { return length_; }
  // Return `starts`, `last` and `tokens` with the layout of the batch axis of x["batch …"].
  Tensor starts_like(Operand x) const;
  Tensor last_like(Operand x) const;
  Tensor tokens_like(Operand x) const;
  // Returns i32["batch seq"], positions of `seq` new tokens a row. Clamped to length() - 1, since
  // padding after a row's last token may lie beyond the cache.
  Tensor positions(int64_t seq) const;
  // Returns bool["batch seq"], laid out as these axes of x["batch seq …"]: false for padding.
  Tensor token_mask(const Tensor& x) const;

  // Returns cache `name` of the layer being traced, after writing rows["batch seq kv_heads
  // head_dim"] of the new tokens: ["batch kv_heads key_seq head_dim"] with key_seq = length(). The
  // state is "cache/<layer path>/<name>", or "cache/<the cache's name>/<layer path>/<name>", split
  // like the rows; stacked on `layers` inside a loop.
  Tensor extended(std::string_view name, const Tensor& rows);
  // Returns state of any other type, whose first axis is "batch" as the layer has it: of the layer
  // being traced, named as above. `update` maps the state after the earlier tokens of each row to
  // the state after its new tokens, which is returned. A row without earlier tokens has `initial`.
  // token_mask() marks padding among the new tokens; a row with padding only keeps its state.
  Tensor updated(std::string_view name, const Type& type,
                 const std::function<Tensor(const Tensor& earlier)>& update, double initial = 0.0);
  // Returns state that depends on the encoder's tokens of a row only, with the type of `value`,
  // ["batch …"]: `value` where they were read in this graph, and what was kept of it later.
  Tensor kept(std::string_view name, const Tensor& value);

 private:
  Tensor next_state(std::string_view name, const Type& type,
                    const std::function<Tensor(const Tensor& state)>& next);
  Tensor like_batch(const Tensor& per_row, Operand x) const;
  Graph& graph_;
  std::string prefix_;  // Prefix of the names of states.
  Tensor starts_, last_, tokens_;
  int64_t length_;
  bool encodes_;
};

// Weights in the dtype that a model computes in, as state besides the originals, so that a decoding
// step, which reads every weight for a few tokens, does not cast all of them.
class CastWeights {
 public:
  // Makes the state for the graph being traced; the table must outlive it.
  explicit CastWeights(const ParameterTable& table);
  CastWeights& operator=(CastWeights&&) = delete;  // Neither copied nor moved.

  // Returns the weight in this dtype, in the layout of FpropScope::parameter, the whole stack if
  // stacked: state "cache/<dtype>/<path>".
  Tensor get(int32_t index, DType dtype);
  // Adds updates to the graph being traced, from `parameters`, of those states that `reader`, a
  // graph traced with CastWeights, reads.
  static void trace_casts(const Graph& reader, const ParameterTable& table,
                          const std::vector<Tensor>& parameters);

 private:
  Graph& graph_;
  const ParameterTable& table_;
  std::map<std::pair<int32_t, DType>, Tensor> made_;
};

class FpropScope {
 public:
  // `parameters` from parameter_inputs, or other tensors of the same types and order (an average of
  // the weights, for example). Stacked ones whose axis `layers` is split (over the stages of a
  // pipeline) are resharded here, in the trace that calls the model, to have it whole: the loop
  // over layers reads all of them, and autodiff splits their gradients again. With a cache the
  // model decodes; with cast weights, Layer::param reads those where it needs a dtype other than
  // the parameter's. Both must outlive the scope. Scopes nest.
  FpropScope(std::vector<Tensor> parameters, const Features& features, DecodeCache* cache = nullptr,
             CastWeights* cast_weights = nullptr);
  // For a part of the model that reads whole sequences in a mode of its own (an encoder, a
  // teacher); their padding has the segment id 0; invalid: unknown.
  FpropScope(const FpropScope& outer, Mode mode, Tensor segment_ids);

  static const FpropScope& current();  // CHECKs that a scope is open.
  static bool decodes();               // Whether a scope with a cache is open.

  // Returns the parameter in its stored layout, except that an axis `layers` is not split.
  const Tensor& parameter(int32_t index) const;
  Mode mode() const { return mode_; }
  const Tensor& step() const { return step_; }                 // i32 scalar; invalid if not given.
  CastWeights* cast_weights() const { return cast_weights_; }  // Null: cast at each use.
  DecodeCache* cache() const { return cache_; }  // Null: whole sequences, from position 0.
  // Returns which tokens of x["batch seq …"] are not padding: bool["batch seq"], laid out as x. In
  // a batch padding has the segment id 0. Invalid if that is unknown: the batch has no segment_ids
  // of these sizes. Weights do not count: a token with weight 0 may be read by later ones.
  Tensor token_mask(const Tensor& x) const;

 private:
  std::vector<Tensor> parameters_;
  Mode mode_;
  Tensor step_, segment_ids_;
  DecodeCache* cache_;
  CastWeights* cast_weights_;
  Restored<const FpropScope*> innermost_;
};

// Returns the rules without activation rules for `seq`: one new token has no sequence to split.
AxisRules without_sequence(AxisRules rules);

// Returns ["batch …"] from x["batch seq …"]: in each row the element numbered `last` i32["batch"].
Tensor at_last(Operand x, const Tensor& last);

}  // namespace tessera
