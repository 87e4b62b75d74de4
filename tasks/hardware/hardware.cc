// SPDX-License-Identifier: Apache-2.0
#include "tasks/hardware/hardware.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/hparams/convert.h"
#include "core/hparams/text.h"
#include "core/io/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = 1 << 20;  // Of a file.
constexpr size_t kTitleColumns = 60;

// Numbers outside of these are mistakes, such as of units.
struct Range {
  std::string_view field;  // A part of its path.
  double least = 0.0, most = 0.0;
  std::string_view unit;
};
constexpr Range kRanges[] = {{"].share", 1e-6, 1.0, ", a share of the peak"},
                             {"products.", 1.0, 1e9, " rows or columns"},  // Of its points.
                             {"memory.copies[", 1.0, 1e18, ""},
                             {"tiles", 1.0, 1e6, ""},
                             {".start", 1e-3, 1e6, ""},
                             {"kernels.", 1e3, 1e21, " operations per second"},
                             {"processor.", 1.0, 1024.0, ""},
                             {"launch_overhead", 1e-12, 1.0, " seconds"},
                             {"latency", 1e-12, 1.0, " seconds"},
                             {"bandwidth", 1e6, 1e18, " bytes per second"},
                             {"memory.bytes", 1e6, 1e18, " bytes"},
                             {"peak_flops", 1e6, 1e21, " FLOP/s"},
                             {"efficiency", 1e-3, 1.0, ", a share of the peak"},
                             {"price_per_hour", 1e-6, 1e9, ""}};

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

void check_ranges(const Tree& given, const std::string& path) {
  for (size_t i = 0; i < given.items.size(); ++i)
    check_ranges(given.items[i],
                 given.is_table() ? given.item_path(path, i) : fmt::format("{}[{}]", path, i));
  if (given.kind != Tree::Kind::kInt && given.kind != Tree::Kind::kDouble) return;
  const TreeReader reader{given, path};
  const double value = reader.to_double();
  if (!(value > 0.0) || !std::isfinite(value)) reader.fail_type("a positive number");
  const auto* range = std::ranges::find_if(
      kRanges, [&](const Range& each) { return path.find(each.field) != std::string::npos; });
  CHECK(range != std::end(kRanges), "{} has a range", path);
  if (value < range->least || value > range->most)
    reader.fail_type(fmt::format("{:g} to {:g}{}", range->least, range->most, range->unit));
}

void check_title(const std::string& title) {
  const bool is_line =
      std::ranges::all_of(title, [](char c) { return static_cast<unsigned char>(c) >= 0x20; });
  if (title.empty() || !is_line || title.size() > kTitleColumns)
    fail("title: got {}, expected one line of 1 to {} bytes", quoted_text(title), kTitleColumns);
}

void check_products(const HardwareFile& file) {
  if (file.tiles && file.kind != HardwareKind::kGpu)
    fail("tiles: only for kind = \"gpu\"; got kind = \"{}\"", enum_name(file.kind));
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

Hardware read_hardware(const fs::path& file) {
  const Tree given = parse_toml(read_file(file, kMostBytes), file.string());
  const ErrorPrefix where(file.string());
  Hardware hardware;
  from_tree(given, static_cast<HardwareFile&>(hardware));
  // Empty tables.
  if (given.find("tiles") != nullptr && !hardware.tiles) hardware.tiles.emplace();
  if (given.find("products") != nullptr && !hardware.products) hardware.products.emplace();
  std::vector<std::string> missing;
  find_missing(to_tree(static_cast<const HardwareFile&>(hardware)), given, "", missing);
  if (!missing.empty())
    fail("missing {}: {}; `runexp --help` names files that have all of them",
         missing.size() == 1 ? "field" : "fields", fmt::join(missing, ", "));
  check_ranges(given, "");
  check_title(hardware.title);
  check_products(hardware);
  check_kernels(hardware);
  if (hardware.memory.copies) check_copies(*hardware.memory.copies);
  hardware.name = file.stem();
  return hardware;
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

}  // namespace tessera
