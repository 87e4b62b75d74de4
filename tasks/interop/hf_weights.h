// SPDX-License-Identifier: Apache-2.0
// Where each tensor of a Hugging Face file has its numbers in our weights, by one table an
// architecture that serves reading and writing. Axes have names on both sides, so a transposition
// is never written out. Values are moved by hf_copy.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/parameter.h"
#include "tasks/interop/hf_model.h"

namespace tessera {

// Numbers that a tensor of theirs and a weight of ours share.
struct HfPart {
  // An axis of theirs, by which ours is entered too.
  struct Step {
    int64_t begin = 0;   // Of the part, along the axis,
    int64_t size = 0;    // and how far it goes.
    int64_t stride = 0;  // From one to the next, in elements of theirs.
    int64_t axis = -1;   // Of ours; -1: fixed there.
    int64_t factor = 1;  // From one to the next along it.
  };
  int32_t parameter = -1;      // Of the table.
  std::vector<int64_t> begin;  // In ours, an index an axis.
  std::vector<Step> steps;     // Outermost first, as theirs lie.
};

struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<HfPart> parts;  // None: every value is `constant`, and ours has no such weight.
  double constant = 0.0;
  double offset = 0.0;  // Theirs is ours and this.
  int64_t rows = 0;     // Along the outermost step,
  int64_t row_elements = 0;

  int64_t elements() const { return rows * row_elements; }
};

// In the order in which they are written. Error for a weight of the table that none of them holds.
std::vector<HfTensor> hf_tensors(const HfModel& model, const ParameterTable& table);

// What names begin with when the whole model is saved: "transformer." or "model."; files of the
// model without its head leave it out.
std::string_view hf_prefix(HfFamily family);

// Tensors that old files hold and no model needs: masks, and frequencies.
bool is_hf_leftover(std::string_view name);

}  // namespace tessera
