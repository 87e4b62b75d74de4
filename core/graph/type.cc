// SPDX-License-Identifier: Apache-2.0
#include "core/graph/type.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"

namespace tessera {
namespace {

// Parses layouts: "batch/data=32 seq embed/mdl + sum(mdl)". Errors quote the whole text.
class LayoutReader {
 public:
  explicit LayoutReader(std::string_view text) : text_(text) {}

  Type read() {
    Type type;
    for (skip_spaces(); !done() && peek() != '+'; skip_spaces()) type.axes.push_back(read_axis());
    if (!done()) type.partial = read_partial();
    check_names(type);
    return type;
  }

 private:
  bool done() const { return position_ == text_.size(); }
  char peek() const { return done() ? '\0' : text_[position_]; }
  void skip_spaces() {
    while (peek() == ' ') ++position_;
  }
  bool skip(char wanted) {
    if (peek() != wanted) return false;
    ++position_;
    return true;
  }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail("layout \"{}\": {}", text_, fmt::format(format, std::forward<Args>(args)...));
  }

  std::string read_name(std::string_view what) {
    const size_t begin = position_;
    while (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '_') ++position_;
    if (position_ == begin) {
      const std::string got = done() ? "its end" : fmt::format("'{}'", peek());
      refuse("expected the name of {} at character {}, got {}", what, begin + 1, got);
    }
    return std::string(text_.substr(begin, position_ - begin));
  }

  Axis read_axis() {
    Axis axis{read_name("an axis"), 0, {}};
    while (skip('/')) axis.split.push_back(read_name("a mesh axis"));
    if (skip('=')) {
      const char* const begin = text_.data() + position_;
      const char* const end = text_.data() + text_.size();
      const auto [stop, error] = std::from_chars(begin, end, axis.size);
      if (error != std::errc()) refuse("expected the size of {} after '='", axis.name);
      position_ += static_cast<size_t>(stop - begin);
    }
    if (!done() && peek() != ' ' && peek() != '+')
      refuse("unexpected '{}' at character {}", peek(), position_ + 1);
    return axis;
  }

  Partial read_partial() {
    skip('+');
    skip_spaces();
    const std::string kind = read_name("a partial, sum(…) or max(…),");
    if (kind != "sum" && kind != "max") refuse("a partial is sum(…) or max(…), not '{}'", kind);
    Partial partial{kind == "sum" ? PartialKind::kSum : PartialKind::kMax, {}};
    if (!skip('(')) refuse("expected '(' after '{}'", kind);
    do {
      skip_spaces();
      partial.mesh_axes.push_back(read_name("a mesh axis"));
      skip_spaces();
    } while (skip(','));
    if (!skip(')')) refuse("expected ')' at character {}", position_ + 1);
    skip_spaces();
    if (!done()) refuse("unexpected '{}' at character {}", peek(), position_ + 1);
    return partial;
  }

  void check_names(const Type& type) const {
    std::vector<std::string> mesh_axes = type.partial.mesh_axes;
    for (size_t i = 0; i < type.axes.size(); ++i) {
      if (type.find(type.axes[i].name) != static_cast<int64_t>(i))
        refuse("axis '{}' is named twice", type.axes[i].name);
      const std::vector<std::string>& split = type.axes[i].split;
      mesh_axes.insert(mesh_axes.end(), split.begin(), split.end());
    }
    std::ranges::sort(mesh_axes);
    const auto twice = std::adjacent_find(mesh_axes.begin(), mesh_axes.end());
    if (twice != mesh_axes.end()) refuse("mesh axis '{}' is used twice", *twice);
  }

  std::string_view text_;
  size_t position_ = 0;
};

// Texts of types are appended, without formats: they are the keys of caches, in which passes look
// up each node.

void append_axis(const Axis& axis, std::string& text) {
  text += axis.name;
  for (const std::string& mesh_axis : axis.split) (text += '/') += mesh_axis;
}

void append_axes(const Type& type, bool sized, std::string& text) {
  for (size_t i = 0; i < type.axes.size(); ++i) {
    if (i > 0) text += ' ';
    append_axis(type.axes[i], text);
    if (sized) append_number(type.axes[i].size, text += '=');
  }
}

void append_partial(const Partial& partial, std::string& text) {
  if (!partial) return;
  text += partial.kind == PartialKind::kSum ? " + sum(" : " + max(";
  for (size_t i = 0; i < partial.mesh_axes.size(); ++i)
    (text += i > 0 ? ", " : "") += partial.mesh_axes[i];
  text += ')';
}

void append_quoted(const Type& type, bool sized, std::string& text) {
  (text += dtype_name(type.dtype)) += "[\"";
  append_axes(type, sized, text);
  text += '"';
  append_partial(type.partial, text);
  text += ']';
}

std::string quoted(const Type& type, bool sized) {
  std::string text;
  append_quoted(type, sized, text);
  return text;
}

// Returns the error of the mesh axes that split a type or over which it is partial, or nullopt.
std::optional<std::string> mesh_axes_problem(const Type& type, const Mesh& mesh) {
  struct Use {
    std::string mesh_axis;
    std::string by;
  };
  std::vector<Use> uses;
  for (const Axis& axis : type.axes)
    for (const std::string& name : axis.split) uses.push_back({name, axis.name});
  for (const std::string& name : type.partial.mesh_axes) uses.push_back({name, "a partial"});
  for (auto use = uses.begin(); use != uses.end(); ++use) {
    if (!mesh.has(use->mesh_axis))
      return fmt::format("{} uses '{}', which the mesh ({}) lacks{}", type.text(), use->mesh_axis,
                         mesh.axes().empty() ? "no axes" : mesh.text(),
                         did_you_mean(use->mesh_axis, mesh.names()));
    const auto other = std::find_if(
        uses.begin(), use, [&](const Use& each) { return each.mesh_axis == use->mesh_axis; });
    if (other != use)
      return fmt::format("{} uses {} for both {} and {}", type.text(), use->mesh_axis, other->by,
                         use->by);
  }
  if ((type.partial.kind == PartialKind::kNone) != type.partial.mesh_axes.empty())
    return fmt::format("{} has a partial of no mesh axes, or of no kind", type.text());
  const auto precedes = [&](const std::string& a, const std::string& b) {
    return mesh.position(a) < mesh.position(b);
  };
  if (!std::is_sorted(type.partial.mesh_axes.begin(), type.partial.mesh_axes.end(), precedes))
    return fmt::format("the partial of {} is not in mesh order", type.text());
  return std::nullopt;
}

// Returns the reason why the size of an axis cannot be split so, or nullopt.
std::optional<std::string> split_problem(const Axis& axis, const Mesh& mesh) {
  if (is_in_pieces(axis, mesh)) {
    const LayerPieces& pieces = mesh.layer_pieces();
    if (axis.split.size() > 1)
      return fmt::format("{} is divided into pieces of {} layers, so it can be split over {} only",
                         axis.text(), pieces.text(), kStageAxis);
    if (axis.size == pieces.layers()) return std::nullopt;
    return fmt::format(
        "{}={} cannot be split over {} into pieces of {} layers, which are {}; give the pieces as "
        "many layers as the stack has",
        axis.name, axis.size, kStageAxis, pieces.text(), pieces.layers());
  }
  const int64_t shards = mesh.size_along(axis.split);
  if (axis.size % shards == 0) return std::nullopt;
  return fmt::format("{}={} cannot be split by {}={}; the nearest size that can is {}", axis.name,
                     axis.size, fmt::join(axis.split, "*"), shards,
                     nearest_multiple(axis.size, shards));
}

// A part of an axis that a device holds, and its place in the device's part.
struct AxisBlock {
  int64_t begin = 0, size = 0, local_begin = 0;
};

std::vector<AxisBlock> axis_blocks(const Axis& axis, const Mesh& mesh, int64_t device) {
  if (!is_in_pieces(axis, mesh)) {
    const int64_t size = axis.size / mesh.size_along(axis.split);
    return {{mesh.index_along(device, axis.split) * size, size, 0}};
  }
  const LayerPieces& pieces = mesh.layer_pieces();
  std::vector<AxisBlock> blocks;
  for (int64_t chunk = 0; chunk < pieces.chunks(); ++chunk) {
    const int64_t piece = pieces.piece(mesh.stage_of(device), chunk);
    blocks.push_back({pieces.first_layer(piece), pieces.layers(piece), pieces.first_row(piece)});
  }
  return blocks;
}

}  // namespace

std::string Axis::text() const {
  std::string text;
  append_axis(*this, text);
  return text;
}

bool Axis::split_over(std::string_view mesh_axis) const {
  return std::ranges::find(split, mesh_axis) != split.end();
}

bool Partial::over(std::string_view mesh_axis) const {
  return std::ranges::find(mesh_axes, mesh_axis) != mesh_axes.end();
}

int64_t Type::elements() const {
  int64_t elements = 1;
  for (const Axis& axis : axes) elements *= axis.size;
  return elements;
}

int64_t Type::bytes() const { return elements() * dtype_bytes(dtype); }

int64_t Type::find(std::string_view axis) const {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == axis) return static_cast<int64_t>(i);
  return -1;
}

const Axis& Type::axis(std::string_view name) const {
  const int64_t position = find(name);
  if (position < 0) fail("no axis '{}' in {}{}", name, text(), did_you_mean(name, names()));
  return axes[static_cast<size_t>(position)];
}

std::vector<std::string> Type::names() const {
  std::vector<std::string> names;
  for (const Axis& axis : axes) names.push_back(axis.name);
  return names;
}

std::string Type::text() const { return quoted(*this, false); }
std::string Type::text_sized() const { return quoted(*this, true); }
void Type::append_sized(std::string& text) const { append_quoted(*this, true, text); }
std::string Type::layout() const {
  std::string text;
  append_axes(*this, false, text);
  append_partial(partial, text);
  return text;
}

Type parse_layout(std::string_view text) { return LayoutReader(text).read(); }

std::vector<Axis> parse_axes(std::string_view text) {
  const Type type = parse_layout(text);
  if (type.partial) fail("axes \"{}\": a partial is not allowed here", text);
  return type.axes;
}

std::vector<std::string> parse_names(std::string_view text) {
  const Type type = parse_layout(text);
  for (const Axis& axis : type.axes)
    if (!axis.split.empty() || axis.size != 0 || type.partial)
      fail("axes \"{}\": plain names expected, got '{}'", text, axis.text());
  return type.names();
}

Type parse_type(std::string_view text) {
  const size_t open = text.find('[');
  if (open == std::string_view::npos || text.back() != ']')
    fail("type '{}' is not of the form f32[\"batch=4 embed=8\"]", text);
  std::string layout(text.substr(open + 1, text.size() - open - 2));
  std::erase(layout, '"');
  Type type = parse_layout(layout);
  type.dtype = parse_dtype(text.substr(0, open));
  return type;
}

Type make_type(DType dtype, std::vector<Axis> axes) { return {dtype, std::move(axes), {}}; }

std::optional<std::string> type_problem(const Type& type, const Mesh& mesh) {
  if (auto problem = mesh_axes_problem(type, mesh)) return problem;
  int64_t elements = 1;
  for (size_t i = 0; i < type.axes.size(); ++i) {
    const Axis& axis = type.axes[i];
    if (type.find(axis.name) != static_cast<int64_t>(i))
      return fmt::format("{} has axis {} twice", type.text(), axis.name);
    if (axis.size < 1) return fmt::format("axis {} has size {}", axis.name, axis.size);
    if (axis.size > kMaxElements / elements)
      return fmt::format("{} has more than {} elements, the most that a tensor may have",
                         type.text_sized(), kMaxElements);
    elements *= axis.size;
    if (auto problem = split_problem(axis, mesh)) return problem;
  }
  return std::nullopt;
}

Type with_whole_axis(Type type, std::string_view axis, const Mesh& mesh) {
  Axis& whole = type.axes[static_cast<size_t>(type.find(axis))];
  const std::vector<std::string> split = std::exchange(whole.split, {});
  for (Axis& other : type.axes) {
    if (&other == &whole || other.name == kLayersAxis) continue;
    if (other.size % (mesh.size_along(other.split) * mesh.size_along(split)) != 0) continue;
    other.split.insert(other.split.end(), split.begin(), split.end());
    break;
  }
  return type;
}

bool is_in_pieces(const Axis& axis, const Mesh& mesh) {
  return !mesh.layer_pieces().empty() && axis.name == kLayersAxis && axis.split_over(kStageAxis);
}

Type local_type(const Type& type, const Mesh& mesh) {
  Type local{type.dtype, {}, {}};
  local.axes.reserve(type.axes.size());
  for (const Axis& axis : type.axes) {
    const int64_t size = is_in_pieces(axis, mesh) ? mesh.layer_pieces().rows()
                                                  : axis.size / mesh.size_along(axis.split);
    local.axes.push_back({axis.name, size, {}});
  }
  return local;
}

bool split_over(const Type& type, std::string_view mesh_axis) {
  return std::ranges::any_of(type.axes,
                             [&](const Axis& axis) { return axis.split_over(mesh_axis); });
}

std::vector<ShardBlock> shard_blocks(const Type& type, const Mesh& mesh, int64_t device) {
  std::vector<ShardBlock> blocks(1);
  for (const Axis& axis : type.axes) {
    // At most one axis has several blocks: two cannot be split over the same mesh axis.
    const std::vector<AxisBlock> along = axis_blocks(axis, mesh, device);
    if (along.size() > 1) blocks.resize(along.size(), blocks.front());
    for (size_t i = 0; i < blocks.size(); ++i) {
      const AxisBlock& each = along[along.size() > 1 ? i : 0];
      blocks[i].global.origin.push_back(each.begin);
      blocks[i].global.shape.push_back(each.size);
      blocks[i].local_origin.push_back(each.local_begin);
    }
  }
  return blocks;
}

bool owns_block(const Type& type, const Mesh& mesh, int64_t device,
                std::span<const int64_t> stages) {
  const bool holds =
      stages.empty() || std::ranges::find(stages, mesh.stage_of(device)) != stages.end();
  if (!holds) return false;
  for (const MeshAxis& axis : mesh.axes()) {
    if (split_over(type, axis.name)) continue;
    const int64_t first = axis.name == kStageAxis && !stages.empty() ? stages.front() : 0;
    if (mesh.index_along(device, {axis.name}) != first) return false;
  }
  return true;
}

std::vector<RowRange> rows_of(const Type& type, const Mesh& mesh, int64_t first_device,
                              int64_t count) {
  CHECK(type.rank() > 0, "a scalar has no rows");
  std::vector<RowRange> held;
  for (int64_t device = first_device; device < first_device + count; ++device) {
    for (const auto& [block, unused] : shard_blocks(type, mesh, device))
      held.push_back({block.origin[0], block.origin[0] + block.shape[0]});
  }
  std::ranges::sort(held, [](const RowRange& a, const RowRange& b) { return a.begin < b.begin; });
  std::vector<RowRange> rows;
  for (const RowRange& range : held) {
    if (rows.empty() || rows.back().end < range.begin) rows.push_back(range);
    rows.back().end = std::max(rows.back().end, range.end);
  }
  return rows;
}

}  // namespace tessera
