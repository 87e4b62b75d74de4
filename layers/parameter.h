// SPDX-License-Identifier: Apache-2.0
// Every weight of a model, in the order in which its layers declare them: name, type, and initial
// values as numbers in host memory. During training the values are in the executor's arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/rules.h"
#include "core/graph/type.h"
#include "core/hparams/layer_params.h"

namespace tessera {

// The axes of a weight that count as inputs and outputs for initialisers that scale by fan in or
// fan out. Both empty: the last axis is the output, the one before it the input, and both are
// multiplied by all earlier ones (Pax's reading of a convolution kernel); a single axis is both.
// They are also the axes of the weight's matrices (matrix_axes).
struct FanAxes {
  std::vector<std::string> in;
  std::vector<std::string> out;
  bool init_by_last_two = false;  // Initialisers take the last two axes all the same.
};

inline WeightInit zeros() { return {InitKind::kConstant, 0.0}; }
inline WeightInit ones() { return {InitKind::kConstant, 1.0}; }

// A weight without a gradient: each training step moves every element by `rate` towards the mean of
// the metric's sums, up where its own is below the mean and down where it is above.
struct BalancedBy {
  std::string metric;  // The full name of a metric of layers with the weight's axes.
  double rate = 0.0;
};

struct Parameter {
  std::string path;  // "lm.transformer.x_layers[3].ffn.up", or x_layers[] when stacked.
  Type type;         // Global, unsplit, in the param dtype; stacked: with leading axis `layers`.
  WeightInit init;
  FanAxes fans;
  std::string random_path;  // `path` with its first layer index removed: x_layers[].
  int64_t layer = -1;  // Index that was removed, or -1. Slice i of a stacked weight has index i.
  int64_t stack = 0;   // Number of stacked layers; 0: not stacked.
  std::vector<AxisRule> rules;  // Rules of its layer, before the experiment's.
  std::vector<Axis> layout;  // The declared axes, if they have splits; the rules then do not apply.
  std::optional<BalancedBy> balanced_by;  // None: trained by gradients.
  bool is_frozen = false;                 // Not trained, whatever the learner says.
  // Sizes of its axes that are widths, relative to a base model (relative_widths); empty: none.
  std::map<std::string, double> widths;
};

// Returns the axes of the matrices of which a weight consists: those that `fans` declares, else the
// last two, unless the weight starts constant as biases and scales do. Its other axes number the
// matrices: layers, experts, the parts of a fused projection. None: it has no matrices.
std::optional<FanAxes> matrix_axes(const Parameter& parameter);

// The maximal update parametrization (muP; Yang et al., "Tensor Programs V", 2022, arXiv
// 2203.03466, table 3). Where a weight's fan-in and fan-out, of axes that are widths, are `in` and
// `out` times those in the base model,
//
//   weights (widths)           initial deviation   Adam's learning rate   SGD's
//   input, vectors (out)       the base's          1                      out
//   hidden (both)              the base's / √in    1 / in                 out / in
//   output (in)                the base's / in     1 / in                 1 / in
//
// keep activations and their changes as large as there. "The base's" is what the initialiser gives
// at the base's sizes. Factors of activations are HParams: tasks/task/mup.h.
struct WidthRatios {
  double in = 1.0, out = 1.0;
  double initial = 1.0;  // The initial deviation relative to the base's.
};
WidthRatios width_ratios(const Parameter& parameter);

// Returns the weight with the sizes that it has in the base model.
Parameter in_base_model(Parameter parameter);

class ParameterTable {
 public:
  // Returns the parameter's index. Error if the path is taken.
  int32_t add(Parameter parameter);
  // Sets Parameter::widths, by axis.
  void set_widths(const std::map<std::string, double>& widths);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const Parameter& at(int32_t index) const { return parameters_[static_cast<size_t>(index)]; }
  const Parameter* find(std::string_view path) const;
  int64_t elements() const;

 private:
  std::vector<Parameter> parameters_;
};

// Returns for each axis of `base` its largest size in weights, relative to that in `base`. Error
// for an axis that no weight has.
std::map<std::string, double> relative_widths(const ParameterTable& table,
                                              const std::map<std::string, int64_t>& base);

// Returns its type in storage: the declared layout, or that of the rules on this mesh, by default
// those being traced.
Type stored_type(const Parameter& parameter, const AxisRules& rules, const Mesh& mesh);
Type stored_type(const Parameter& parameter);

// Makes one graph input of kind kParameter for each parameter, named by its path, with its
// stored_type.
// Error for a layer's rule about an axis that none of its weights has.
std::vector<Tensor> parameter_inputs(const ParameterTable& table);

// Fills `destination` with the initial values of this block of the weight, row-major in its dtype
// (f32 or bf16), on up to `threads` threads (0: one per core). They are a pure function of the
// seed, the weight's path and an element's global index, so that every mesh and number of hosts
// starts with the same bits, and a stacked weight with those of the unrolled ones. The whole weight
// is never materialised, except for an orthogonal one: there, one layer's matrix at a time. Error
// if the initialiser does not suit the weight's axes.
void initialize(const Parameter& parameter, uint64_t seed, const Region& block,
                std::span<std::byte> destination, int threads = 0);

// An initialiser for a weight of these sizes (without the stack's axis): a standard distribution
// and the factor that multiplies its draws.
struct Draw {
  enum class Distribution { kConstant, kNormal, kTruncatedNormal, kUniform, kOrthogonal };
  Distribution distribution = Distribution::kConstant;
  double factor = 0.0;  // kUniform: of U(-1, 1).
};
Draw draw_of(const Parameter& parameter);

}  // namespace tessera
