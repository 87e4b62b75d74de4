// SPDX-License-Identifier: Apache-2.0
#include "core/graph/typing.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

bool is_prefix(const std::vector<std::string>& shorter, const std::vector<std::string>& longer) {
  return shorter.size() <= longer.size() &&
         std::equal(shorter.begin(), shorter.end(), longer.begin());
}

// The first operand split over a mesh axis, and the axis that is split.
struct SplitUse {
  size_t operand = 0;
  const Axis* axis = nullptr;
};
std::optional<SplitUse> find_split(const InferContext& context, const std::string& mesh_axis) {
  for (size_t i = 0; i < context.inputs.size(); ++i)
    for (const Axis& axis : context.inputs[i].axes)
      if (axis.split_over(mesh_axis)) return SplitUse{i, &axis};
  return std::nullopt;
}

// Returns the node at which the partial of operand `i` starts: its own operands are not partial.
// Null if it is not in this graph.
const Node* maker_of_partial(const InferContext& context, size_t i) {
  const Graph& graph = *context.graph;
  ValueId id = context.values[i];
  while (true) {
    const NodeId producer = graph.value(id).producer;
    if (producer == kNone) return nullptr;
    const Node& node = graph.node(producer);
    const auto partial = std::ranges::find_if(
        node.inputs, [&](ValueId input) { return static_cast<bool>(graph.type(input).partial); });
    if (partial == node.inputs.end()) return &node;
    id = *partial;
  }
}

}  // namespace

void refuse(const InferContext& context, std::string_view message) {
  fail("{}: {}", context.op, message);
}

std::string place_hint(std::string_view name) {
  const bool is_expression = std::ranges::all_of(name, [](char character) {
    return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '_' ||
           character == '.' || character == '[' || character == ']' || character == '/';
  });
  return is_expression ? fmt::format("place({})", name) : "place it";
}

std::string place_hint(const InferContext& context, size_t i) {
  const Node* maker = context.graph == nullptr ? nullptr : maker_of_partial(context, i);
  const bool is_elsewhere = maker != nullptr && maker->site.known() && context.site.known() &&
                            std::string_view(maker->site.file) != context.site.file;
  if (!is_elsewhere) return place_hint(context.names[i]);
  return fmt::format("place the result of {} at {}", maker->op->name, maker->site.text());
}

std::string mesh_text(const std::vector<std::string>& mesh_axes) {
  return fmt::format("{}", fmt::join(mesh_axes, ", "));
}

std::vector<std::string> mesh_union(const Mesh& mesh, const std::vector<std::string>& a,
                                    const std::vector<std::string>& b) {
  std::vector<std::string> both = a;
  both.insert(both.end(), b.begin(), b.end());
  std::ranges::sort(both, [&](const std::string& x, const std::string& y) {
    return mesh.position(x) < mesh.position(y);
  });
  both.erase(std::unique(both.begin(), both.end()), both.end());
  return both;
}

void refuse_maximum(const InferContext& context) {
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    const Partial& partial = context.inputs[i].partial;
    if (partial.kind != PartialKind::kMax) continue;
    refuse(context, "{} is a partial max over {}; reshard it to replicated", context.names[i],
           mesh_text(partial.mesh_axes));
  }
}

void refuse_partial(const InferContext& context, size_t i) {
  refuse_maximum(context);
  const Partial& partial = context.inputs[i].partial;
  if (!partial) return;
  fail("{} is not linear; {} is partial over {}; {}", context.op, context.names[i],
       mesh_text(partial.mesh_axes), place_hint(context, i));
}

void refuse_partial(const InferContext& context) {
  for (size_t i = 0; i < context.inputs.size(); ++i) refuse_partial(context, i);
}

Partial partial_of_sum(const InferContext& context, std::initializer_list<size_t> operands) {
  refuse_maximum(context);
  const size_t first = *operands.begin();
  for (const size_t other : operands) {
    const Partial& a = context.inputs[first].partial;
    const Partial& b = context.inputs[other].partial;
    if (a == b) continue;
    const std::string& name_a = context.names[first];
    const std::string& name_b = context.names[other];
    if (a && b)
      refuse(context, "{} partial over {}, {} over {}; place both", name_a, mesh_text(a.mesh_axes),
             name_b, mesh_text(b.mesh_axes));
    const std::string& whole_name = a ? name_b : name_a;
    const std::string over = mesh_text((a ? a : b).mesh_axes);
    refuse(context,
           "{} is a partial sum over {}, {} is not; {} would count once for "
           "each device along {}; {} before adding",
           a ? name_a : name_b, over, whole_name, whole_name, over,
           place_hint(context, a ? first : other));
  }
  return context.inputs[first].partial;
}

Partial partial_of_product(const InferContext& context) {
  refuse_maximum(context);
  Partial product;
  std::vector<size_t> owners;  // For each mesh axis of the product: the partial operand.
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    for (const std::string& mesh_axis : context.inputs[i].partial.mesh_axes) {
      if (product.over(mesh_axis))
        refuse(context, "both operands are partial over {}; {}", mesh_axis, place_hint(context, i));
      if (const auto use = find_split(context, mesh_axis))
        refuse(context, "{} is partial over {}, which splits {} of {}; {}", context.names[i],
               mesh_axis, use->axis->name, context.names[use->operand], place_hint(context, i));
      product.kind = PartialKind::kSum;
      product.mesh_axes.push_back(mesh_axis);
    }
  }
  product.mesh_axes = mesh_union(context.mesh, product.mesh_axes, {});
  return product;
}

void check_agreement(const InferContext& context, size_t a, size_t b) {
  const std::string& name_a = context.names[a];
  const std::string& name_b = context.names[b];
  for (const Axis& x : context.inputs[a].axes) {
    const int64_t position = context.inputs[b].find(x.name);
    if (position < 0) continue;
    const Axis& y = context.inputs[b].axes[static_cast<size_t>(position)];
    if (x.size != y.size)
      refuse(context, "{} is {} in {} and {} in {}; axes of one name have one size", x.name, x.size,
             name_a, y.size, name_b);
    if (x.split == y.split) continue;
    if (std::is_permutation(x.split.begin(), x.split.end(), y.split.begin(), y.split.end()))
      refuse(context, "{} is split {} in {}, {} in {}; order counts; reshard one", x.name,
             fmt::join(x.split, "/"), name_a, fmt::join(y.split, "/"), name_b);
    const std::string both =
        fmt::format("{} has {}, {} has {}", name_a, x.text(), name_b, y.text());
    if (is_prefix(y.split, x.split))
      refuse(context, "{}; reshard {} to {} (free slice) or gather {}", both, name_b, x.text(),
             name_a);
    if (is_prefix(x.split, y.split))
      refuse(context, "{}; reshard {} to {} (free slice) or gather {}", both, name_a, y.text(),
             name_b);
    refuse(context, "{}; reshard one", both);
  }
}

std::vector<Axis> aligned_axes(const InferContext& context) {
  std::vector<Axis> axes = context.inputs[0].axes;
  for (size_t i = 1; i < context.inputs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) check_agreement(context, j, i);
    const Type so_far = make_type(context.inputs[0].dtype, axes);
    const Type& operand = context.inputs[i];
    const bool has_all =
        std::ranges::all_of(axes, [&](const Axis& axis) { return operand.has(axis.name); });
    const bool first_lacks_some = operand.axes.size() > axes.size();
    if (has_all && first_lacks_some) {
      axes = operand.axes;
      continue;
    }
    for (const Axis& axis : operand.axes)
      if (!so_far.has(axis.name)) axes.push_back(axis);
  }
  return axes;
}

void check_mesh_axes_once(const InferContext& context, const Type& result) {
  struct Use {
    std::string mesh_axis;
    const Axis* axis;
  };
  std::vector<Use> uses;
  // Suggest placing the last operand with the axis.
  const auto culprit = [&](const Axis& axis) {
    for (size_t i = context.inputs.size(); i-- > 0;)
      if (context.inputs[i].has(axis.name)) return place_hint(context.names[i]);
    return std::string("reshard an operand");
  };
  for (const Axis& axis : result.axes) {
    for (const std::string& mesh_axis : axis.split) {
      for (const Use& use : uses) {
        if (use.mesh_axis != mesh_axis) continue;
        refuse(context, "result uses {} for both {} and {}; {}", mesh_axis, use.axis->name,
               axis.name, culprit(axis));
      }
      if (result.partial.over(mesh_axis))
        refuse(context, "result is partial over {}, which also splits {}; {}", mesh_axis, axis.name,
               culprit(axis));
      uses.push_back({mesh_axis, &axis});
    }
  }
}

void check_same_dtype(const InferContext& context) {
  for (size_t i = 1; i < context.inputs.size(); ++i) {
    const DType a = context.inputs[0].dtype;
    const DType b = context.inputs[i].dtype;
    if (a == b) continue;
    refuse(context, "{} is {}, {} is {}; cast one", context.names[0], dtype_name(a),
           context.names[i], dtype_name(b));
  }
}

void check_floating(const InferContext& context) {
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    if (is_floating(context.inputs[i].dtype)) continue;
    refuse(context, "{} is {}, expected a floating dtype; cast it", context.names[i],
           dtype_name(context.inputs[i].dtype));
  }
}

void check_numeric(const InferContext& context) {
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    if (context.inputs[i].dtype != DType::kBool) continue;
    refuse(context, "{} is bool, expected numbers; cast it", context.names[i]);
  }
}

void check_dtype(const InferContext& context, size_t i, DType dtype) {
  if (context.inputs[i].dtype == dtype) return;
  refuse(context, "{} is {}, expected {}", context.names[i], dtype_name(context.inputs[i].dtype),
         dtype_name(dtype));
}

const Axis& axis_of(const InferContext& context, size_t i, std::string_view name) {
  const Type& type = context.inputs[i];
  const int64_t position = type.find(name);
  if (position >= 0) return type.axes[static_cast<size_t>(position)];
  refuse(context, "{} has no axis '{}': it is {}{}", context.names[i], name, type.text(),
         did_you_mean(name, type.names()));
}

const Axis& unsplit_axis_of(const InferContext& context, size_t i, std::string_view name) {
  const Axis& axis = axis_of(context, i, name);
  if (!axis.split.empty())
    refuse(context, "{} of {} is split over {}; reshard it to unsplit {}", name, context.names[i],
           mesh_text(axis.split), name);
  return axis;
}

}  // namespace tessera
