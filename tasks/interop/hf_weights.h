// SPDX-License-Identifier: Apache-2.0
// Maps each tensor of a Hugging Face file to our weights, by the rows of its family. Axes are named
// on both sides, so transpositions are implicit. hf_copy.h moves values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layers/parameter.h"
#include "tasks/interop/hf_model.h"

namespace tessera {

// Values that a tensor of theirs and a weight of ours have in common.
struct HfPart {
  // An axis of their tensor, with the corresponding axis of ours.
  struct Step {
    int64_t size = 0;    // Number of indices,
    int64_t stride = 0;  // and stride in their elements.
    int64_t axis = -1;   // Our axis.
    int64_t factor = 1;  // Our indices per index of theirs.
  };
  int32_t parameter = -1;      // Index in the table.
  std::vector<int64_t> begin;  // The first index in each of our axes,
  int64_t offset = 0;          // and the first element of theirs.
  std::vector<Step> steps;     // Outermost axis of theirs first; at least one.
};

struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<HfPart> parts;  // None: all values are `constant`, and we have no such weight.
  double constant = 0.0;
  double offset = 0.0;  // Theirs = ours + offset.
  int64_t rows = 0;     // Size of the outermost axis,
  int64_t row_elements = 0;

  int64_t elements() const { return rows * row_elements; }
};

// The tensors in the order of writing. Error for a weight of the TransformerLm that no tensor
// holds.
std::vector<HfTensor> hf_tensors(const HfModel& model, const ParameterTable& table);

// "head.w f32[…]" for each weight of a head around the TransformerLm, which no tensor holds, and
// "the 14 weights of lm.mtp".
std::vector<std::string> weights_outside(const ParameterTable& table);

enum class NoteLength { kWhole, kBrief };
// The line that says before training why --mode=export cannot write the model, or what it leaves
// out; "" if it writes all of it. kBrief: the first reason only, and "" for a model without a
// TransformerLm, which is obviously of no family.
std::string export_note(const ExperimentConfig& experiment, NoteLength length);

// What names in files of the whole model begin with: "model."; files of a model without head omit
// it.
std::string_view hf_prefix(const HfFamily& family);

// Tensors in old files that no model needs: masks, and frequencies.
bool is_hf_leftover(std::string_view name);

}  // namespace tessera
