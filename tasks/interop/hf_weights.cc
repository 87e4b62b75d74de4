// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/hf_weights.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <tuple>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/type.h"
#include "layers/attention/latent_attention.h"
#include "tasks/families/hf_family.h"
#include "tasks/task/base_task.h"

namespace tessera {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (const auto part : std::views::split(text, separator))
    if (!part.empty()) parts.emplace_back(part.begin(), part.end());
  return parts;
}

struct SizedAxis {
  std::string name;
  int64_t size = 1;
};

// "heads +head_dim": axes that all rows have, and those along which rows are concatenated.
struct Dimension {
  std::vector<SizedAxis> common, joined;
  bool joins = false;
};

int64_t product_of(const std::vector<SizedAxis>& axes) {
  int64_t product = 1;
  for (const SizedAxis& axis : axes) product *= axis.size;
  return product;
}

std::vector<Dimension> dimensions_of(const WeightRow& row, const Type& type) {
  std::vector<Dimension> dimensions;
  for (const std::string& text : split(row.axes, ',')) {
    Dimension dimension;
    for (std::string name : split(text, ' ')) {
      if (name[0] == '+') {
        dimension.joins = true;
        name.erase(0, 1);
      }
      if (name.empty()) continue;
      auto& axes = dimension.joins ? dimension.joined : dimension.common;
      axes.push_back({name, type.axis(name).size});
    }
    dimensions.push_back(std::move(dimension));
  }
  return dimensions;
}

// The shape of a tensor from the axes that the rows of a family name (WeightRow::axes), and where
// in it the elements of each row are.
class TensorAxes {
 public:
  struct Step {
    std::string name;
    int64_t size = 0, stride = 0;  // Stride in elements of the tensor.
  };
  // The elements of one row: its axes, outermost first, and the first element.
  struct Part {
    int64_t offset = 0;
    std::vector<Step> steps;
  };

  // The rows of one tensor; types[i] has the sizes of row i's axes.
  TensorAxes(std::span<const WeightRow> rows, const std::vector<const Type*>& types);

  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const { return elements_; }
  const Part& part(size_t row) const { return parts_[row]; }

 private:
  std::vector<int64_t> shape_;
  int64_t elements_ = 1;
  std::vector<Part> parts_;
};

TensorAxes::TensorAxes(std::span<const WeightRow> rows, const std::vector<const Type*>& types) {
  std::vector<std::vector<Dimension>> dimensions;
  for (size_t i = 0; i < rows.size(); ++i) dimensions.push_back(dimensions_of(rows[i], *types[i]));
  parts_.resize(rows.size());
  // From the innermost dimension outwards.
  for (size_t d = dimensions[0].size(); d-- > 0;) {
    int64_t joined = 0;  // Indices along the concatenation.
    for (size_t i = 0; i < rows.size(); ++i) {
      Dimension& dimension = dimensions[i][d];
      if (dimension.joins) parts_[i].offset += joined * elements_;
      joined = (dimension.joins ? joined : 0) + product_of(dimension.joined);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      int64_t stride = elements_;
      const auto add = [&](const std::vector<SizedAxis>& axes) {
        for (const SizedAxis& axis : axes | std::views::reverse) {
          parts_[i].steps.push_back({axis.name, axis.size, stride});
          stride *= axis.size;
        }
      };
      add(dimensions[i][d].joined);
      stride = elements_ * joined;
      add(dimensions[i][d].common);
    }
    const int64_t size = joined * product_of(dimensions[0][d].common);
    shape_.insert(shape_.begin(), size);
    elements_ *= size;
  }
  for (Part& part : parts_) std::ranges::reverse(part.steps);
}

// Layer and expert of a tensor that each of them has; 0 for other tensors.
struct Place {
  int64_t layer = 0, expert = 0;
};

std::string with_place(std::string_view name, const Place& place) {
  std::string text(name);
  for (const int64_t number : {place.layer, place.expert})
    if (const size_t at = text.find("{}"); at != std::string::npos)
      text.replace(at, 2, std::to_string(number));
  return text;
}

constexpr std::string_view kEncoder = "encoder.";

bool is_of_layer(const WeightRow& row) { return row.theirs.find("{}") != std::string_view::npos; }
bool is_of_expert(const WeightRow& row) { return row.theirs.find("{}") != row.theirs.rfind("{}"); }

bool is_of_encoder(const WeightRow& row) {
  return is_of_layer(row) && row.ours.starts_with(kEncoder);
}

std::string prefix_of(const WeightRow& row) {
  return std::string(is_of_encoder(row) ? kEncoder : "");
}

// Below the block of its layer, or below the TransformerLm.
std::string_view ours_name(const WeightRow& row) {
  return std::string_view(row.ours).substr(prefix_of(row).size());
}

// The layers of which the row is: those of the encoder, or the others.
const LayerList& list_of(const WeightRow& row, const LayeredLm& model) {
  return is_of_encoder(row) ? model.encoder : model;
}

// A weight, or a slice of a stacked or fused one.
struct Slice {
  int32_t parameter = -1;
  int64_t layer = -1;   // Index along `layers`,
  int64_t expert = -1;  // along `experts`,
  int64_t part = -1;    // and along `qkv`.

  auto key() const { return std::tuple(parameter, layer, expert); }
};

// What the paths of the TransformerLm's weights begin with: "lm." in a LanguageModel.
std::string root_of(const ParameterTable& table) {
  for (const Parameter& each : table.parameters())
    if (const size_t at = each.path.find(".transformer."); at != std::string::npos) {
      const std::string root = each.path.substr(0, at + 1);
      return root.ends_with(kEncoder) ? root.substr(0, root.size() - kEncoder.size()) : root;
    }
  return "";
}

bool is_shared(std::string_view path) { return path.starts_with("shared."); }

// Whether the weight is of the TransformerLm's mtp_tpl.
bool is_of_mtp(std::string_view path, const std::string& root) {
  return path.starts_with(root + "mtp.");
}

// Whether no tensor can hold the weight.
bool is_outside(std::string_view path, const std::string& root) {
  return !is_shared(path) && (!path.starts_with(root) || is_of_mtp(path, root));
}

// Whether the weight has all axes of the row.
bool has_axes(const Type& type, std::string_view axes) {
  std::string names(axes);
  for (char& c : names)
    if (c == ',' || c == '+') c = ' ';
  for (const auto name : std::views::split(names, ' '))
    if (!name.empty() && type.find(std::string_view(name.begin(), name.end())) < 0) return false;
  return true;
}

// The weights of a model, found by the names of WeightRow::ours.
class NamedWeights {
 public:
  NamedWeights(const ParameterTable& table, const LayeredLm& model)
      : table_(table), model_(model), root_(root_of(table)) {}

  std::optional<Slice> find(const WeightRow& row, const Place& place) const {
    for (const auto alternative : std::views::split(ours_name(row), '|')) {
      const std::string name(alternative.begin(), alternative.end());
      if (const auto found = named(row, name, place)) return found;
      if (const auto found = fused(row, name, place)) return found;
    }
    return {};
  }
  const Parameter& at(const Slice& slice) const { return table_.at(slice.parameter); }
  const ParameterTable& table() const { return table_; }
  const std::string& root() const { return root_; }

 private:
  std::optional<Slice> named(const WeightRow& row, const std::string& name,
                             const Place& place) const {
    Slice slice;
    std::string path = is_shared(name) ? name : root_ + name;
    if (is_of_layer(row)) {
      const LayerPlace& at = list_of(row, model_).places[static_cast<size_t>(place.layer)];
      path = root_ + at.path + name;
      slice.layer = at.index;
    }
    if (is_of_expert(row)) slice.expert = place.expert;
    const Parameter* found = table_.find(path);
    if (found == nullptr) return {};
    // One name may be of different weights: those of experts, or of queries from a latent.
    const bool names_experts = is_of_expert(row) || row.axes.find("experts") != row.axes.npos;
    if (names_experts != (found->type.find("experts") >= 0)) return {};
    if (name.find("qkv") == name.npos && !has_axes(found->type, row.axes)) return {};
    slice.parameter = static_cast<int32_t>(found - table_.parameters().data());
    return slice;
  }

  // combine_qkv: one weight with an axis qkv.
  std::optional<Slice> fused(const WeightRow& row, const std::string& name,
                             const Place& place) const {
    constexpr std::array<std::string_view, 3> kParts = {"query", "key", "value"};
    for (size_t part = 0; part < kParts.size(); ++part)
      for (const std::string_view suffix : {"", "_bias"}) {
        if (name != fmt::format("attention.{}{}", kParts[part], suffix)) continue;
        auto found = named(row, fmt::format("attention.qkv{}", suffix), place);
        if (found) found->part = static_cast<int64_t>(part);
        return found;
      }
    return {};
  }

  const ParameterTable& table_;
  const LayeredLm& model_;
  const std::string root_;
};

// How the elements of a layer's heads are rotated.
struct Rotation {
  bool interleaved = false;
  double share = 1.0;
};
Rotation rotation_of(TransformerBlock::HParams layer) {
  Template<RotaryPositionEmbedding>* const rotary_tpl = rotary_of(layer);
  if (rotary_tpl == nullptr || !rotary_tpl->has()) return {};
  const auto& rotary = rotary_tpl->as<RotaryPositionEmbedding::HParams>();
  return {rotary.interleaved, rotary.rotary_share};
}

// Weights along the elements of queries and keys that are rotated in pairs.
bool is_rotated(std::string_view ours, const TransformerBlock::HParams& layer) {
  if (layer.attention_tpl.holds<LatentAttention::HParams>())
    return ours == "attention.query_rope" || ours == "attention.key_rope";
  return ours.starts_with("attention.query") || ours.starts_with("attention.key");
}

// A scale that is stored minus 1 starts at 0.
bool is_from_zero(const Parameter& parameter) {
  return parameter.path.ends_with(".scale") && parameter.init == zeros();
}

class Mapper {
 public:
  Mapper(const HfModel& model, const ParameterTable& table)
      : model_(model),
        reference_(Template<BaseModel>(LanguageModel::HParams{
                                           .lm_tpl = stacked(model.theirs, StackStyle::kRepeated)})
                       .instantiate()),
        ours_(table, model.ours),
        theirs_(reference_->parameters(), model.theirs) {}

  std::vector<HfTensor> tensors() {
    const std::span<const WeightRow> rows = model_.family->weights;
    // Layer by layer, with all rows of a layer adjacent.
    for (size_t i = 0; i < rows.size();) {
      size_t end = i + 1;
      while (end < rows.size() && is_of_layer(rows[end]) == is_of_layer(rows[i]) &&
             is_of_encoder(rows[end]) == is_of_encoder(rows[i]))
        ++end;
      const auto layers = std::ssize(list_of(rows[i], model_.theirs).layers);
      for (int64_t layer = 0; layer < (is_of_layer(rows[i]) ? layers : 1); ++layer)
        add_layer(rows.subspan(i, end - i), layer);
      i = end;
    }
    check_all_held();
    return std::move(tensors_);
  }

 private:
  void add_layer(std::span<const WeightRow> rows, int64_t layer) {
    for (size_t i = 0; i < rows.size();) {
      size_t end = i + 1;
      while (end < rows.size() && rows[end].theirs == rows[i].theirs) ++end;
      const int64_t copies = copies_of(rows[i], layer);
      for (int64_t expert = 0; expert < copies; ++expert)
        add_tensor(rows.subspan(i, end - i), {layer, expert});
      i = end;
    }
  }

  // 0 for a weight that their model does not have, or that an earlier row holds.
  int64_t copies_of(const WeightRow& row, int64_t layer) const {
    const std::optional<Slice> found = theirs_.find(row, {layer, 0});
    const bool is_alone =
        !row.with.empty() &&
        !theirs_.find({row.theirs, row.axes, prefix_of(row) + std::string(row.with)}, {layer, 0});
    if (!found || is_alone || stored_.contains(found->key())) return 0;
    return is_of_expert(row) ? theirs_.at(*found).type.axis("experts").size : 1;
  }

  void add_tensor(std::span<const WeightRow> rows, const Place& place) {
    std::vector<const Type*> types;
    for (const WeightRow& row : rows) {
      const std::optional<Slice> found = theirs_.find(row, place);
      CHECK(found, "a tensor of which only some parts exist: {}", row.theirs);
      stored_.insert(found->key());
      types.push_back(&theirs_.at(*found).type);
    }
    const TensorAxes axes(rows, types);
    HfTensor tensor{.name = with_place(rows[0].theirs, place), .shape = axes.shape()};
    tensor.rows = tensor.shape[0];
    tensor.row_elements = axes.elements() / tensor.rows;
    for (size_t i = 0; i < rows.size(); ++i) add_part(axes.part(i), rows[i], place, &tensor);
    tensors_.push_back(std::move(tensor));
  }

  void add_part(const TensorAxes::Part& axes, const WeightRow& row, const Place& place,
                HfTensor* tensor) {
    const Parameter& reference = theirs_.at(*theirs_.find(row, place));
    const std::optional<Slice> ours = ours_.find(row, place);
    const double from_zero = is_from_zero(reference) ? 1.0 : 0.0;
    if (!ours) {
      if (!row.ours.ends_with("bias") && !row.ours.ends_with(".b") && !row.ours.ends_with(".scale"))
        fail("the model has no weight {} for the tensor '{}'", row.ours, tensor->name);
      tensor->constant = row.ours.ends_with(".scale") ? 1.0 - from_zero : 0.0;
      return;
    }
    const Parameter& parameter = ours_.at(*ours);
    tensor->offset = (is_from_zero(parameter) ? 1.0 : 0.0) - from_zero;
    HfPart part{.parameter = ours->parameter, .offset = axes.offset};
    part.begin.assign(parameter.type.axes.size(), 0);
    const auto fix = [&](std::string_view axis, int64_t index) {
      if (index >= 0) part.begin[static_cast<size_t>(parameter.type.find(axis))] = index;
    };
    fix(kLayersAxis, ours->layer);
    fix("experts", ours->expert);
    fix("qkv", ours->part);
    int64_t shared = 1;
    for (const TensorAxes::Step& axis : axes.steps) {
      const int64_t at = axis_in(parameter, axis, tensor->name);
      shared *= axis.size;
      const auto layer = static_cast<size_t>(place.layer);
      if (axis.name == "head_dim" &&
          is_rotated(ours_name(row), list_of(row, model_.theirs).layers[layer])) {
        add_rotated(row, axis, at, layer, &part);
      } else {
        part.steps.push_back({axis.size, axis.stride, at, 1});
      }
    }
    held_[ours->parameter] += shared;
    tensor->parts.push_back(std::move(part));
  }

  // In a fused projection the key heads are on the axis `heads`.
  static int64_t axis_in(const Parameter& parameter, const TensorAxes::Step& axis,
                         const std::string& tensor) {
    int64_t at = parameter.type.find(axis.name);
    if (at < 0 && axis.name == "kv_heads") at = parameter.type.find("heads");
    if (at < 0 || parameter.type.axes[static_cast<size_t>(at)].size != axis.size)
      fail("the tensor '{}' has an axis {}={}, but the weight {} is {}", tensor, axis.name,
           axis.size, parameter.path, parameter.type.text_sized());
    return at;
  }

  // Pairs (2i, 2i+1) on one side may be pairs (i, i + half) on the other.
  void add_rotated(const WeightRow& row, const TensorAxes::Step& axis, int64_t at, size_t layer,
                   HfPart* part) const {
    const auto [ours, share] = rotation_of(list_of(row, model_.ours).layers[layer]);
    const bool theirs = rotation_of(list_of(row, model_.theirs).layers[layer]).interleaved;
    const int64_t half = axis.size / 2;
    if (ours != theirs && share != 1.0)
      fail(
          "rotary_tpl.interleaved is {}, {} has the other order, which is converted for whole "
          "heads only, not with rotary_share={}",
          ours, model_.family->model_type, share);
    if (ours == theirs) {
      part->steps.push_back({axis.size, axis.stride, at, 1});
    } else if (ours) {
      part->steps.push_back({2, axis.stride * half, at, 1});
      part->steps.push_back({half, axis.stride, at, 2});
    } else {
      part->steps.push_back({half, axis.stride * 2, at, 1});
      part->steps.push_back({2, axis.stride, at, half});
    }
  }

  void check_all_held() const {
    std::vector<std::string> lost;
    const auto& parameters = ours_.table().parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto held = held_.find(static_cast<int32_t>(i));
      const Parameter& parameter = parameters[i];
      if (is_outside(parameter.path, ours_.root())) continue;
      if (held == held_.end() || held->second != parameter.type.elements())
        lost.push_back(fmt::format("{} {}", parameter.path, parameter.type.text_sized()));
    }
    if (!lost.empty())
      fail("the format of {} has no tensor for {}", model_.family->model_type,
           fmt::join(lost, ", "));
  }

  const HfModel& model_;
  const std::unique_ptr<BaseModel> reference_;  // With the weights that config.json describes.
  const NamedWeights ours_, theirs_;
  std::set<std::tuple<int32_t, int64_t, int64_t>> stored_;  // NamedWeights of theirs, in tensors.
  std::map<int32_t, int64_t> held_;  // Elements of each weight of ours found in tensors.
  std::vector<HfTensor> tensors_;
};

}  // namespace

std::vector<HfTensor> hf_tensors(const HfModel& model, const ParameterTable& table) {
  return Mapper(model, table).tensors();
}

std::vector<std::string> weights_outside(const ParameterTable& table) {
  const std::string root = root_of(table);
  std::vector<std::string> others;
  std::map<std::string, int64_t> counts;  // Weights that are listed together.
  for (const Parameter& each : table.parameters()) {
    if (is_of_mtp(each.path, root)) {
      ++counts[root + "mtp"];
    } else if (each.is_frozen) {
      ++counts[each.path.substr(0, each.path.find('.'))];
    } else if (is_outside(each.path, root)) {
      others.push_back(fmt::format("{} {}", each.path, each.type.text_sized()));
    }
  }
  for (const auto& [part, count] : counts)
    others.push_back(fmt::format("the {} weights of {}", count, part));
  return others;
}

std::string export_note(const ExperimentConfig& experiment, NoteLength length) {
  try {
    const std::unique_ptr<BaseTask> task = experiment.task.instantiate();
    const ParameterTable& table = task->model().parameters();
    if (length == NoteLength::kBrief && root_of(table).empty()) return "";
    hf_tensors(hf_model_of(experiment), table);
    const std::vector<std::string> others = weights_outside(table);
    if (others.empty()) return "";
    return fmt::format("note: an export to Hugging Face leaves out {}", fmt::join(others, ", "));
  } catch (const std::exception& error) {
    const std::string all = error.what(), first = all.substr(0, all.find("; "));
    const bool is_cut = length == NoteLength::kBrief && first != all;
    return "note: cannot be exported to Hugging Face: " +
           (is_cut ? first + "; … (--describe has all reasons)" : all);
  }
}

std::string_view hf_prefix(const HfFamily& family) {
  const std::string_view first = family.weights.at(0).theirs;
  return first.substr(0, first.find('.') + 1);
}

bool is_hf_leftover(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace tessera
