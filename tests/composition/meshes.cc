// SPDX-License-Identifier: Apache-2.0
#include "tests/composition/meshes.h"

#include <algorithm>
#include <iterator>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "tests/composition/features.h"

namespace tessera {
namespace {

using R = RuleParts;

const std::vector<Role> kRoles = {
    {"replica", {&R::batch}},
    {"fsdp", {&R::batch, &R::weight_embed}},
    {"fsdp_width", {&R::batch, &R::weight_width}},
    {"tensor", {&R::width, &R::vocab, &R::weight_width}},
    {"sequence", {&R::width, &R::vocab, &R::weight_width, &R::residual_seq}},
    {"vocab", {&R::vocab}},
    {"ring", {&R::seq}},
    {"fsdp_ring", {&R::seq, &R::weight_embed}},
    {"context", {&R::seq, &R::context}},  // All-to-all: attention has whole sequences.
    {"experts", {&R::batch, &R::experts, &R::weight_experts}},
};

const std::vector<ScheduleRow> kSchedules = {
    {"gpipe", 1, GPipe::HParams{}},
    {"1f1b", 1, OneForwardOneBackward::HParams{}},
    {"zero_bubble", 1, ZeroBubbleH1::HParams{}},
    {"interleaved", 2, InterleavedOneForwardOneBackward::HParams{.chunks = 2}},
    {"circular", 2, CircularPipeline::HParams{.chunks = 2}},
};

template <typename Row>
const Row& row_of(const std::vector<Row>& rows, std::string_view name, std::string_view what) {
  const auto found = std::ranges::find(rows, name, &Row::name);
  std::vector<std::string> names;
  for (const Row& each : rows) names.emplace_back(each.name);
  if (found == rows.end()) fail("no {} '{}'{}", what, name, did_you_mean(name, names));
  return *found;
}

const char* const kAxes[] = {"replica", "data", "mdl"};

// "axis -> (a, b)" if there are mesh axes for it.
class RuleText {
 public:
  void add(std::string_view axis, const std::vector<std::string>& mesh) {
    if (!mesh.empty()) rules_.push_back(fmt::format("{} -> ({})", axis, fmt::join(mesh, ", ")));
  }
  void add(std::string rule) { rules_.push_back(std::move(rule)); }
  std::vector<AxisRule> rules() const {
    return parse_rules(fmt::format("{}", fmt::join(rules_, ", ")));
  }

 private:
  std::vector<std::string> rules_;
};

}  // namespace

const std::vector<Role>& roles() { return kRoles; }
const Role& role(std::string_view name) { return row_of(kRoles, name, "role of a mesh axis"); }
const std::vector<ScheduleRow>& schedules() { return kSchedules; }
const ScheduleRow& schedule(std::string_view name) { return row_of(kSchedules, name, "schedule"); }

Mesh mesh_of(const Composition& composition) {
  std::vector<MeshAxis> axes;
  if (composition.stages > 1) axes.push_back({std::string(kStageAxis), composition.stages});
  for (size_t i = 0; i < std::size(kAxes); ++i) {
    const AxisUse use = i < composition.mesh.size() ? composition.mesh[i] : AxisUse{};
    const int64_t slices = use.slices ? 2 : 1;
    axes.push_back({kAxes[i], use.size / slices, slices});
  }
  return Mesh(std::move(axes));
}

AxisRules rules_of(const Composition& composition, const ModelParts& parts) {
  RuleParts r;
  int64_t split = 1;  // Parts of the heads.
  for (size_t i = 0; i < composition.mesh.size(); ++i) {
    for (const RuleList list : role(composition.mesh[i].role).lists) {
      (r.*list).emplace_back(kAxes[i]);
      if (list == &R::width || list == &R::context) split *= composition.mesh[i].size;
    }
  }
  // Key heads that cannot be split as the heads are: every device has all.
  const int64_t key_heads = parts.attention.num_kv_heads.get_or(parts.sizes.heads);
  const bool splits_keys = key_heads % split == 0;

  RuleText weights, activations;
  if (composition.stages > 1) weights.add("layers -> stage");
  weights.add("experts", r.weight_experts);
  weights.add("embed", r.weight_embed);
  for (const char* const axis : {"mlp", "heads", "vocab"}) weights.add(axis, r.weight_width);
  if (splits_keys) weights.add("kv_heads", r.weight_width);

  std::vector<std::string> heads = r.width;
  heads.insert(heads.end(), r.context.begin(), r.context.end());
  if (!r.context.empty()) {
    std::vector<std::string> ring = r.seq;  // What a ring of attention keeps.
    std::erase_if(ring, [&](const std::string& axis) {
      return std::ranges::find(r.context, axis) != r.context.end();
    });
    activations.add(fmt::format("attention: seq -> ({})", fmt::join(ring, ", ")));
    activations.add("attention: heads", heads);
    if (splits_keys) activations.add("attention: kv_heads", heads);
  }
  activations.add("experts", r.experts);
  std::vector<std::string> residual = r.seq;
  residual.insert(residual.end(), r.residual_seq.begin(), r.residual_seq.end());
  if (!r.residual_seq.empty()) activations.add("residual: seq", residual);
  activations.add("batch", r.batch);
  activations.add("seq", r.seq);
  activations.add("mlp", r.width);
  activations.add("heads", r.width);
  if (splits_keys) activations.add("kv_heads", r.width);
  activations.add("vocab", r.vocab);
  return {weights.rules(), activations.rules()};
}

}  // namespace tessera
