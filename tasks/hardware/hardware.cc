// SPDX-License-Identifier: Apache-2.0
#include "tasks/hardware/hardware.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/ranges.h>

#include "core/base/error.h"
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
constexpr Range kRanges[] = {{"launch_overhead", 1e-12, 1.0, " seconds"},
                             {"latency", 1e-12, 1.0, " seconds"},
                             {"bandwidth", 1e6, 1e18, " bytes per second"},
                             {"memory.bytes", 1e6, 1e18, " bytes"},
                             {"peak_flops", 1e6, 1e21, " FLOP/s"},
                             {"efficiency", 1e-3, 1.0, ", a share of the peak"},
                             {"tiles", 1.0, 1e6, ""},
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
  }
}

void check_ranges(const Tree& given, const std::string& path) {
  if (given.is_table())
    for (size_t i = 0; i < given.items.size(); ++i)
      check_ranges(given.items[i], given.item_path(path, i));
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

}  // namespace

Hardware read_hardware(const fs::path& file) {
  const Tree given = parse_toml(read_file(file, kMostBytes), file.string());
  const ErrorPrefix where(file.string());
  Hardware hardware;
  from_tree(given, static_cast<HardwareFile&>(hardware));
  if (given.find("tiles") != nullptr && !hardware.tiles) hardware.tiles.emplace();  // Empty.
  std::vector<std::string> missing;
  find_missing(to_tree(static_cast<const HardwareFile&>(hardware)), given, "", missing);
  if (!missing.empty())
    fail("missing {}: {}; `runexp --help` names files that have all of them",
         missing.size() == 1 ? "field" : "fields", fmt::join(missing, ", "));
  check_ranges(given, "");
  check_title(hardware.title);
  if (hardware.tiles && hardware.kind != HardwareKind::kGpu)
    fail("tiles: only for kind = \"gpu\"; got kind = \"{}\"", enum_name(hardware.kind));
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
