// SPDX-License-Identifier: Apache-2.0
#include "tests/composition/meshes.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "tests/composition/features.h"
#include "tests/support/chance.h"

namespace tessera {
namespace {

using R = RuleParts;

const std::vector<Role> kRoles = {
    {"replica", {&R::batch}},
    {"fsdp", {&R::batch, &R::weight_embed}},
    {"fsdp_width",
     {&R::batch, &R::weight_heads, &R::weight_kv_heads, &R::weight_mlp, &R::weight_vocab}},
    {"tensor",
     {&R::heads, &R::mlp, &R::vocab, &R::weight_heads, &R::weight_kv_heads, &R::weight_mlp,
      &R::weight_vocab}},
    {"sequence",
     {&R::heads, &R::mlp, &R::vocab, &R::weight_heads, &R::weight_kv_heads, &R::weight_mlp,
      &R::weight_vocab, &R::residual_seq}},
    {"vocab", {&R::vocab}},
    {"ring", {&R::seq}},
    {"fsdp_ring", {&R::seq, &R::weight_embed}},
    {"context", {&R::seq, &R::context}},  // All-to-all: attention has whole sequences.
    {"experts", {&R::batch, &R::experts, &R::weight_experts}},
    {kRandomRole, {}},
};

const std::vector<ScheduleRow> kSchedules = {
    {"gpipe", 1, true, GPipe::HParams{}},
    {"1f1b", 1, true, OneForwardOneBackward::HParams{}},
    {"zero_bubble", 1, true, ZeroBubbleH1::HParams{}},
    {"interleaved", 2, false, InterleavedOneForwardOneBackward::HParams{.chunks = 2}},
    {"interleaved_3", 3, false, InterleavedOneForwardOneBackward::HParams{.chunks = 3}},
    {"circular", 2, false, CircularPipeline::HParams{.chunks = 2}},
    {"circular_3", 3, false, CircularPipeline::HParams{.chunks = 3}},
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

// What activations use a mesh axis for is drawn first, and of that a part; then the weights that
// are split over it when stored.
std::vector<RuleList> random_lists(Chance& chance) {
  const auto some_of = [&](std::initializer_list<RuleList> lists) {
    std::vector<RuleList> some;
    for (const RuleList each : lists)
      if (chance.coin()) some.push_back(each);
    return some;
  };
  std::vector<RuleList> lists;
  switch (chance.below(6)) {
    case 0:
    case 1:
      lists = {&R::batch};
      break;
    case 2:
      lists = some_of({&R::context});
      lists.push_back(&R::seq);
      break;
    case 3:
    case 4:
      lists = some_of({&R::heads, &R::mlp, &R::vocab, &R::residual_seq});
      break;
    default:  // All devices along the axis compute the same.
      break;
  }
  // An expert's width may be split as that of a dense layer is.
  if (std::ranges::find(lists, &R::mlp) == lists.end() && chance.coin())
    lists.push_back(&R::experts);
  for (const RuleList each :
       some_of({&R::weight_embed, &R::weight_heads, &R::weight_kv_heads, &R::weight_mlp,
                &R::weight_vocab, &R::weight_positions, &R::weight_experts}))
    lists.push_back(each);
  return lists;
}

std::vector<RuleList> lists_of(const Composition& composition, size_t axis) {
  const Role& given = role(composition.mesh[axis].role);
  if (given.name != kRandomRole) return given.lists;
  Chance chance(composition.seed * 8 + static_cast<uint32_t>(axis));
  return random_lists(chance);
}

std::vector<AxisRule> weight_rules(const Composition& composition, const RuleParts& r,
                                   Chance* order) {
  std::vector<std::pair<const char*, RuleList>> lists = {{"experts", &R::weight_experts},
                                                         {"embed", &R::weight_embed},
                                                         {"mlp", &R::weight_mlp},
                                                         {"heads", &R::weight_heads},
                                                         {"vocab", &R::weight_vocab},
                                                         {"kv_heads", &R::weight_kv_heads},
                                                         {"positions", &R::weight_positions}};
  if (order != nullptr) order->shuffle(lists);
  RuleText weights;
  if (composition.stages > 1) weights.add("layers -> stage");
  for (const auto& [axis, list] : lists) weights.add(axis, r.*list);
  return weights.rules();
}

std::vector<AxisRule> activation_rules(const RuleParts& r, bool splits_keys) {
  RuleText activations;
  if (!r.context.empty()) {
    std::vector<std::string> heads = r.heads;
    heads.insert(heads.end(), r.context.begin(), r.context.end());
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
  activations.add("mlp", r.mlp);
  activations.add("heads", r.heads);
  if (splits_keys) activations.add("kv_heads", r.heads);
  activations.add("vocab", r.vocab);
  return activations.rules();
}

const std::vector<RuleList> kAllLists = {&R::batch,
                                         &R::seq,
                                         &R::residual_seq,
                                         &R::heads,
                                         &R::mlp,
                                         &R::vocab,
                                         &R::context,
                                         &R::experts,
                                         &R::weight_embed,
                                         &R::weight_heads,
                                         &R::weight_kv_heads,
                                         &R::weight_mlp,
                                         &R::weight_vocab,
                                         &R::weight_positions,
                                         &R::weight_experts};

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
  const int64_t key_heads = parts.attention.num_kv_heads.get_or(parts.sizes.heads);
  int64_t split = 1, stored_split = 1;  // Parts of the key heads.
  bool is_random = false;
  for (size_t i = 0; i < composition.mesh.size(); ++i) {
    is_random = is_random || composition.mesh[i].role == kRandomRole;
    for (const RuleList list : lists_of(composition, i)) {
      (r.*list).emplace_back(kAxes[i]);
      if (list == &R::heads || list == &R::context) split *= composition.mesh[i].size;
      if (list == &R::weight_kv_heads) stored_split *= composition.mesh[i].size;
    }
  }
  // Key heads that cannot be split as the heads are: every device has all.
  if (key_heads % stored_split != 0) r.weight_kv_heads.clear();
  Chance order(composition.seed);
  if (is_random)
    for (const RuleList list : kAllLists) order.shuffle(r.*list);
  return {weight_rules(composition, r, is_random ? &order : nullptr),
          activation_rules(r, key_heads % split == 0)};
}

}  // namespace tessera
