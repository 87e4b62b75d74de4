// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/hardware/hardware.h"

#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/hparams/convert.h"
#include "core/hparams/text.h"
#include "core/io/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = 1 << 22;  // Largest file.
constexpr size_t kTitleColumns = 60;

// Fields without a default that the file does not have.
void find_missing(const Tree& fields, const Tree& given, const std::string& path,
                  std::vector<std::string>& missing) {
  for (size_t i = 0; i < fields.items.size(); ++i) {
    const Tree& field = fields.items[i];
    const std::string here = fields.item_path(path, i);
    const Tree* item = given.find(fields.keys[i]);
    if (item == nullptr && field.is_set() && !field.is_table()) missing.push_back(here);
    if (field.is_table())
      find_missing(field, item == nullptr ? Tree::table() : *item, here, missing);
    if (!field.is_list() || item == nullptr || item->items.size() != field.items.size()) continue;
    for (size_t k = 0; k < field.items.size(); ++k)
      find_missing(field.items[k], item->items[k], fmt::format("{}[{}]", here, k), missing);
  }
}

void check_title(const std::string& title) {
  const bool is_line =
      std::ranges::all_of(title, [](char c) { return static_cast<unsigned char>(c) >= 0x20; });
  if (title.empty() || !is_line || title.size() > kTitleColumns)
    fail("title: got {}, expected one line of 1 to {} bytes", quoted_text(title), kTitleColumns);
}

void check_products(const HardwareFile& file) {
  const std::pair<std::string_view, bool> of_gpus[] = {
      {"multiprocessors", file.multiprocessors.has_value()},
      {"tiles", file.tiles.has_value()},
      {"attention", file.attention.has_value()}};
  for (const auto& [table, is_given] : of_gpus) {
    if (!is_given) continue;
    if (file.kind != HardwareKind::kGpu)
      fail("{}: only for kind = \"gpu\"; got kind = \"{}\"", table, enum_name(file.kind));
    if (!file.multiprocessors)
      fail(
          "{}: expected [multiprocessors], too: count, clock, matrix_share and "
          "shared_memory_bytes",
          table);
  }
  if (!file.products) return;
  if (file.tiles)
    fail("tiles and products both say how fast products of a shape are: expected one of them");
  const auto is_given = [](const auto& points) { return points && !points->empty(); };
  if (!is_given(file.products->f32) && !is_given(file.products->bf16))
    fail("products: expected points {{m = …, n = …, k = …, share = …}} in f32, bf16 or both");
}

void check_copies(const std::vector<CopyPoint>& copies) {
  if (copies.empty())
    fail("memory.copies: expected at least one point {{bytes = …, bandwidth = …}}");
  for (size_t i = 1; i < copies.size(); ++i)
    if (copies[i].bytes <= copies[i - 1].bytes)
      fail("memory.copies[{}].bytes: got {}, expected more than the {} before it", i,
           copies[i].bytes, copies[i - 1].bytes);
}

void check_kernels(const HardwareFile& file) {
  for (const auto& [op, rate] : file.kernels) {
    const std::vector<const OpDef*> ops = all_ops();
    if (std::ranges::find(ops, op, &OpDef::name) == ops.end()) {
      std::vector<std::string> names;
      for (const OpDef* each : ops) names.emplace_back(each->name);
      fail("kernels.{}: unknown op{}", op, did_you_mean(op, names));
    }
    if (!rate.f32 && !rate.bf16)
      fail("kernels.{}: expected operations per second in f32, bf16 or both", op);
  }
  if (file.processor && file.kind != HardwareKind::kCpu)
    fail("processor: only for kind = \"cpu\"; got kind = \"{}\"", enum_name(file.kind));
}

// Drops what is unset or empty, and shortens numbers.
void prepare_to_write(Tree& tree) {
  tree.is_default = true;  // Without comments on where values are from.
  if (tree.kind == Tree::Kind::kDouble) {
    tree.text = fmt::format("{:.4g}", tree.number);
    tree.kind = Tree::Kind::kText;
  }
  for (size_t i = tree.items.size(); i-- > 0;) {
    const Tree& item = tree.items[i];
    if (item.is_set() && !(item.is_table() && item.items.empty())) {
      prepare_to_write(tree.items[i]);
    } else {
      tree.items.erase(tree.items.begin() + static_cast<int64_t>(i));
      tree.keys.erase(tree.keys.begin() + static_cast<int64_t>(i));
    }
  }
}

}  // namespace

const std::vector<ProductPoint>& ProductCurve::points(DType dtype) const {
  const auto is_given = [](const auto& points) { return points && !points->empty(); };
  const auto &first = dtype == DType::kBF16 ? bf16 : f32,
             &second = dtype == DType::kBF16 ? f32 : bf16;
  return is_given(first) ? *first : *second;
}

double KernelRate::operator()(DType dtype) const {
  const auto &first = dtype == DType::kBF16 ? bf16 : f32,
             &second = dtype == DType::kBF16 ? f32 : bf16;
  return first ? *first : *second;
}

Hardware parse_hardware(std::string_view text, const std::string& where) {
  const Tree given = parse_toml(text, where);
  Hardware hardware;
  {
    const ErrorPrefix prefix(where);
    from_tree(given, static_cast<HardwareFile&>(hardware));
    // Empty tables.
    if (given.find("multiprocessors") != nullptr && !hardware.multiprocessors)
      hardware.multiprocessors.emplace();
    if (given.find("tiles") != nullptr && !hardware.tiles) hardware.tiles.emplace();
    if (given.find("products") != nullptr && !hardware.products) hardware.products.emplace();
    if (given.find("attention") != nullptr && !hardware.attention) hardware.attention.emplace();
    std::vector<std::string> missing;
    find_missing(to_tree(static_cast<const HardwareFile&>(hardware)), given, "", missing);
    if (!missing.empty())
      fail("missing {}: {}; `runexp --mode=plan --help` names files that have all of them",
           missing.size() == 1 ? "field" : "fields", fmt::join(missing, ", "));
    check_title(hardware.title);
    check_products(hardware);
    check_kernels(hardware);
    if (hardware.memory.copies) check_copies(*hardware.memory.copies);
  }
  check_values(to_tree(static_cast<const HardwareFile&>(hardware)), where);
  return hardware;
}

Hardware read_hardware(const fs::path& file) {
  Hardware hardware = parse_hardware(read_file(file, kMostBytes), file.string());
  hardware.name = file.stem();
  return hardware;
}

std::string hardware_text(const HardwareFile& file, const std::string& comment) {
  Tree tree = to_tree(file);
  prepare_to_write(tree);
  if (Tree* const kernels = tree.find("kernels"))
    for (Tree& rate : kernels->items) rate.role = Tree::Role::kField;  // On one line.
  std::string text = to_toml(tree, "SPDX-License-Identifier: Apache-2.0\n" + comment);
  constexpr std::string_view kNextPoint = "}, {";
  for (size_t at = text.find(" = [{"); (at = text.find(kNextPoint, at)) != std::string::npos; ++at)
    text.replace(at, kNextPoint.size(), "},\n  {");
  return text;
}

std::vector<std::string> hardware_names(const fs::path& folder) {
  std::vector<std::string> names;
  if (!fs::is_directory(folder)) return names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

Hardware find_hardware(std::string_view given, const fs::path& folder) {
  if (given.find('/') != std::string_view::npos || given.ends_with(".toml")) {
    if (!fs::exists(given)) fail("--hardware={}: no such file", given);
    Hardware hardware = read_hardware(given);
    hardware.name = given;
    return hardware;
  }
  const std::vector<std::string> names = hardware_names(folder);
  if (names.empty()) fail("--hardware={}: {} has no hardware files", given, folder.string());
  if (std::ranges::find(names, given) == names.end())
    fail("--hardware={}: unknown hardware{}; expected {} or the path of a TOML file", given,
         did_you_mean(given, names), fmt::join(names, ", "));
  return read_hardware(folder / fmt::format("{}.toml", given));
}

std::optional<Hardware> shared_launch_costs(const fs::path& path, ProcessGroup& processes) {
  if (path.empty()) return std::nullopt;
  const fs::path file = fs::is_directory(path) ? path / kFittedHardwareFile : path;
  constexpr std::string_view kWriter = "runexp --mode=calibrate --trace=RUN writes one with them";
  const auto text = [&] {
    if (!fs::is_regular_file(file))
      fail("--launch_costs={}: {} is not a file of measured launches; {}", path.string(),
           file.string(), kWriter);
    return read_file(file, kMostBytes);
  };
  Hardware hardware = parse_hardware(
      processes.broadcast(processes.is_first() ? text() : "", "the file of launch costs"),
      file.string());
  if (hardware.launches.empty()) fail("{} has no [launches]; {}", file.string(), kWriter);
  return hardware;
}

}  // namespace tessera
