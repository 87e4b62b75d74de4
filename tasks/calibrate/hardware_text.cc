// SPDX-License-Identifier: Apache-2.0
#include "tasks/calibrate/hardware_text.h"

#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "core/hparams/text.h"

namespace tessera {
namespace {

// A TOML float with four digits, which are more than a measurement has.
std::string number(double value) { return fmt::format("{:.3e}", value); }

void add_optional(std::string& text, const char* name, const std::optional<double>& value) {
  if (value) text += fmt::format("{} = {}\n", name, number(*value));
}

std::string link_text(const char* name, const DeviceLink& link) {
  std::string text = fmt::format("\n[{}]\nbandwidth = {}\nlatency = {}\n", name,
                                 number(link.bandwidth), number(link.latency));
  if (link.topology) text += fmt::format("topology = \"{}\"\n", enum_name(*link.topology));
  return text;
}

std::string points_text(const char* name, const std::optional<std::vector<ProductPoint>>& points) {
  if (!points) return "";
  std::string text = fmt::format("{} = [\n", name);
  for (const ProductPoint& each : *points)
    text += fmt::format("  {{m = {}, n = {}, k = {}, share = {:#.3g}}},\n", each.m, each.n, each.k,
                        each.share);
  return text + "]\n";
}

std::string copies_text(const std::vector<CopyPoint>& points) {
  std::string text = "copies = [  # Bytes of the source and the result.\n";
  for (const CopyPoint& each : points)
    text += fmt::format("  {{bytes = {}, bandwidth = {}}},\n", each.bytes, number(each.bandwidth));
  return text + "]\n";
}

std::string kernel_text(const std::string& op, const KernelRate& rate) {
  std::vector<std::string> fields;
  for (const auto& [name, value] :
       {std::pair("f32", rate.f32), std::pair("bf16", rate.bf16), std::pair("start", rate.start)})
    if (value) fields.push_back(fmt::format("{} = {}", name, number(*value)));
  return fmt::format("{} = {{{}}}\n", op, fmt::join(fields, ", "));
}

}  // namespace

std::string hardware_text(const HardwareFile& file, const std::string& comment) {
  std::string text = "# SPDX-License-Identifier: Apache-2.0\n";
  std::istringstream lines(comment);
  for (std::string line; std::getline(lines, line);) text += "# " + line + "\n";
  text += fmt::format("title = {}\nkind = \"{}\"\nlaunch_overhead = {}\n", quoted_text(file.title),
                      enum_name(file.kind), number(file.launch_overhead));
  add_optional(text, "price_per_hour", file.price_per_hour);
  if (file.processor)
    text += fmt::format("\n[processor]\ndevices = {}\nthreads = {}  # Of each device.\n",
                        file.processor->devices, file.processor->threads);
  text += fmt::format("\n[peak_flops]\nbf16 = {}\nf32 = {}\n", number(file.peak_flops.bf16),
                      number(file.peak_flops.f32));
  add_optional(text, "fp8", file.peak_flops.fp8);
  add_optional(text, "elementwise", file.peak_flops.elementwise);
  text += fmt::format("\n[memory]\nbytes = {}\nbandwidth = {}\n", file.memory.bytes,
                      number(file.memory.bandwidth));
  if (file.memory.copies) text += copies_text(*file.memory.copies);
  text += link_text("link", file.link) + link_text("network", file.network);
  if (file.host) text += link_text("host", *file.host);
  text += fmt::format("\n[efficiency]\nproducts = {:.4f}\ncopies = {:.4f}\nlinks = {:.4f}\n",
                      file.efficiency.products, file.efficiency.copies, file.efficiency.links);
  if (file.tiles)
    text += fmt::format("\n[tiles]\nmultiprocessors = {}\nstart = {:.1f}\n",
                        file.tiles->multiprocessors, file.tiles->start);
  if (file.products)
    text += "\n[products]\n" + points_text("f32", file.products->f32) +
            points_text("bf16", file.products->bf16);
  if (!file.kernels.empty()) text += "\n[kernels]  # Operations per second.\n";
  for (const auto& [op, rate] : file.kernels) text += kernel_text(op, rate);
  return text;
}

}  // namespace tessera
