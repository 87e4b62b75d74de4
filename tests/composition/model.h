// SPDX-License-Identifier: Apache-2.0
// The task, mesh, rules and batches of a composition.
#pragma once

#include <cstdint>
#include <optional>

#include "core/graph/mesh.h"
#include "core/graph/rules.h"
#include "inputs/base_input.h"
#include "tasks/task/model_pipeline.h"
#include "tests/composition/composition.h"
#include "tests/composition/features.h"

namespace tessera {

struct CompositionModel {
  SingleTask::HParams task;
  Mesh mesh;
  AxisRules rules;
  ModelParts parts;
  uint32_t seed = 0;

  Batch batch(int64_t step) const;
};

// On the composition's mesh, or the same model on one device. Without `sizes` they are those of the
// campaign.
enum class Place { kMesh, kOneDevice };
CompositionModel model_of(const Composition& composition, Place place,
                          const std::optional<CompositionSizes>& sizes = {});

// A batch without its elements.
Batch specification_of(Batch batch);

}  // namespace tessera
