// SPDX-License-Identifier: Apache-2.0
#include "core/io/json_line.h"
#include "tasks/modes/plan_report.h"

namespace tessera {
namespace {

std::string bytes_json(const std::vector<NamedBytes>& list) {
  JsonLine json;
  for (const auto& [name, bytes] : list) json.add(name, bytes);
  return json.text();
}

// One element a line.
template <typename List, typename Text>
std::string array_json(const List& list, Text text) {
  std::string json;
  for (const auto& element : list) json += (json.empty() ? "\n  " : ",\n  ") + text(element);
  return json.empty() ? "[]" : "[" + json + "\n]";
}

std::string names_json(const std::vector<std::string>& names) {
  std::string json;
  for (const std::string& name : names) json += (json.empty() ? "" : ", ") + json_quoted(name);
  return "[" + json + "]";
}

std::string axis_json(const MeshAxis& axis) {
  return JsonLine().add("name", axis.name).add("ici", axis.ici).add("dcn", axis.dcn).text();
}

std::string total_json(const AxisTotal& total) {
  return JsonLine()
      .add_raw("mesh_axes", names_json(total.mesh_axes))
      .add("link", link_name(total.link))
      .add("count", total.count)
      .add("bytes", total.bytes)
      .text();
}

std::string collective_json(const PlannedCollective& one) {
  return JsonLine()
      .add("op", one.op)
      .add("value", one.value)
      .add_raw("mesh_axes", names_json(one.mesh_axes))
      .add("link", link_name(one.link))
      .add("dtype", dtype_name(one.dtype))
      .add("bytes", one.bytes)
      .add("count", one.count)
      .add("phase", phase_name(one.phase))
      .add("path", one.path)
      .add("source", one.source)
      .text();
}

}  // namespace

std::string plan_json(const Plan& plan) {
  return JsonLine()
      .add("parameters", plan.parameters)
      .add("devices", plan.devices)
      .add_raw("mesh", array_json(plan.mesh, axis_json))
      .add("tokens_per_step", plan.tokens_per_step)
      .add("flops_per_step", plan.flops_per_step)
      .add("flops_per_device", plan.flops_per_device)
      .add("launches_per_step", plan.launches)
      .add_raw("memory_per_device", bytes_json(plan.memory))
      .add("peak_bytes", plan.peak)
      .add("arena_bytes", plan.arena)
      .add_raw("saved_for_backward", bytes_json(plan.saved))
      .add_raw("communication", array_json(plan.totals, total_json))
      .add_raw("collectives", array_json(plan.collectives, collective_json))
      .text();
}

}  // namespace tessera
