// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/nearest_mesh.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/graph/type.h"
#include "inputs/checked_input.h"
#include "tasks/run/session/check_rules.h"
#include "tasks/search/space.h"
#include "tasks/task/base_task.h"
#include "tasks/task/model_pipeline.h"

namespace tessera {
namespace {

constexpr size_t kMostTries = 48;

// Whether the training step can be traced on this mesh.
bool fits(const ExperimentConfig& config, const BaseTask& task, const BaseInput& input, Mesh mesh) {
  try {
    const AxisRules rules = make_rules(config.rules);
    check_rules(rules, mesh);
    if (const auto pipeline = model_pipeline(task.train(), task.model().parameters(), rules, mesh))
      mesh = with_pieces(std::move(mesh), *pipeline);
    const Type batch =
        apply_rules(rules.activations, mesh,
                    make_type(DType::kI32, {{"batch", input.global_batch_size(), {}}}));
    if (type_problem(batch, mesh)) return false;
    check_rules(rules, task.train_graph({mesh, rules, global_specification(input)}));
    return true;
  } catch (const Error&) {
    return false;
  }
}

Mesh with_shape(const Mesh& mesh, const std::vector<int64_t>& ici) {
  std::vector<MeshAxis> axes = mesh.axes();
  for (size_t i = 0; i < axes.size(); ++i) axes[i].ici = ici[i];
  return Mesh(std::move(axes));
}

double distance(const Mesh& mesh, const std::vector<int64_t>& ici) {
  double sum = 0.0;
  for (size_t i = 0; i < ici.size(); ++i)
    sum +=
        std::abs(std::log(static_cast<double>(ici[i]) / static_cast<double>(mesh.axes()[i].ici)));
  return sum;
}

}  // namespace

std::optional<std::vector<int64_t>> nearest_fitting_shape(const ExperimentConfig& config,
                                                          int64_t devices) {
  try {
    const Mesh mesh = planned_mesh(config.mesh, devices);
    std::vector<MeshAxis> single = mesh.axes();
    int64_t in_slice = 1;
    for (MeshAxis& axis : single) {
      in_slice *= axis.ici;
      axis.ici = axis.dcn = 1;
    }
    if (mesh.num_devices() == 1) return std::nullopt;
    const std::unique_ptr<BaseTask> task = config.task.instantiate();
    const std::unique_ptr<BaseInput> input = make_input(config.input);
    if (fits(config, *task, *input, mesh)) return std::nullopt;
    if (!fits(config, *task, *input, Mesh(std::move(single)))) return std::nullopt;
    std::vector<std::vector<int64_t>> shapes = factorizations(in_slice, mesh.axes().size());
    std::ranges::stable_sort(shapes, {},
                             [&](const std::vector<int64_t>& ici) { return distance(mesh, ici); });
    shapes.resize(std::min(shapes.size(), kMostTries));
    for (const std::vector<int64_t>& ici : shapes)
      if (fits(config, *task, *input, with_shape(mesh, ici))) return ici;
  } catch (const Error&) {
    // Something else is wrong, which the caller reports.
  }
  return std::nullopt;
}

}  // namespace tessera
