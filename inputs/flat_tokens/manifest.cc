// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens/manifest.h"

#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/printable.h"
#include "core/io/json.h"
#include "inputs/content_sample.h"
#include "inputs/flat_tokens/megatron_index.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFiles = "files", kSkipped = "skipped";

std::string files_json(const TokenBuild& build) {
  JsonLine files;
  ContentSample sample(0);
  std::set<std::string> names;
  const auto add = [&](const std::string& name, const fs::path& path) {
    // Folders may have files of one name.
    const std::string unique =
        names.insert(name).second ? name : fs::absolute(path).lexically_normal().string();
    files.add(valid_utf8(unique), sample.entry_of_file(name, path));
  };
  for (const BuildInput& input : build.from.inputs) {
    add(input.name, input.path);
    if (input.format == nullptr && has_megatron_index(input.path, build.token_dtype))
      add(input.name + ".idx", MegatronIndex::beside(input.path));
  }
  return files.text();
}

std::map<std::string, std::string> members_of(const Json& manifest, std::string_view section) {
  std::map<std::string, std::string> members;
  for (const auto& [name, value] : manifest.at(section).as_object())
    members[name] = value.is_string() ? value.as_string() : std::to_string(value.as_integer());
  return members;
}

// Names of files, of which a few are listed.
void add_names(std::string_view title, const std::vector<std::string>& names,
               std::vector<std::string>* lines) {
  constexpr size_t kMostNamed = 5;
  if (names.empty()) return;
  const std::vector<std::string> few(names.begin(),
                                     names.begin() + std::min(kMostNamed, names.size()));
  lines->push_back(fmt::format("{} {}: {}{}", names.size(), title, fmt::join(few, ", "),
                               few.size() < names.size() ? ", …" : ""));
}

}  // namespace

std::string manifest_of(const TokenBuild& build, const BuildSettings& settings,
                        const SkippedRecords& skipped) {
  JsonLine options, left_out;
  for (const std::string& setting : settings) {
    const size_t colon = setting.find(": ");
    const std::string name = setting.substr(0, colon);
    // The inputs' fingerprint has paths and times.
    if (name != "inputs") options.add(name, valid_utf8(setting.substr(colon + 2)));
  }
  if (skipped.empty > 0) left_out.add("empty", skipped.empty);
  for (const auto& [reason, count] : skipped.corrupt.reasons)
    left_out.add(valid_utf8(reason), count);
  return JsonLine()
      .add("tessera", TESSERA_VERSION)
      .add_raw("options", options.text())
      .add_raw(kSkipped, left_out.text())
      .add_raw(kFiles, files_json(build))
      .text();
}

std::vector<std::string> manifest_differences(const std::string& first, const std::string& second) {
  const Json a = parse_json(first, "manifest"), b = parse_json(second, "manifest");
  std::vector<std::string> lines;
  const auto compare = [&](const std::string& name, const std::string& of_a,
                           const std::string& of_b) {
    if (of_a != of_b) lines.push_back(fmt::format("{}: {}, then {}", name, of_a, of_b));
  };
  compare("Tessera", a.at("tessera").as_string(), b.at("tessera").as_string());
  for (const std::string_view section : {std::string_view("options"), kSkipped}) {
    auto of_a = members_of(a, section), of_b = members_of(b, section);
    auto all = of_a;
    all.insert(of_b.begin(), of_b.end());
    const auto text = [&](std::map<std::string, std::string>& of, const std::string& name) {
      return of.emplace(name, section == kSkipped ? "0" : "none").first->second;
    };
    for (const auto& [name, unused] : all)
      compare(section == kSkipped ? "skipped, " + name : name, text(of_a, name), text(of_b, name));
  }
  std::vector<std::string> only_a, only_b, changed;
  const auto of_a = members_of(a, kFiles), of_b = members_of(b, kFiles);
  for (const auto& [name, content] : of_a)
    if (const auto found = of_b.find(name); found == of_b.end())
      only_a.push_back(name);
    else if (found->second != content)
      changed.push_back(name);
  for (const auto& [name, content] : of_b)
    if (!of_a.contains(name)) only_b.push_back(name);
  add_names("files only in the first", only_a, &lines);
  add_names("files only in the second", only_b, &lines);
  add_names("files with other contents", changed, &lines);
  return lines;
}

std::string manifest_summary(const std::string& manifest) {
  const Json json = parse_json(manifest, "manifest");
  std::vector<std::string> skipped;
  for (const auto& [reason, count] : members_of(json, kSkipped))
    skipped.push_back(count + " " + reason);
  return fmt::format("{} files, by Tessera {}; skipped: {}", members_of(json, kFiles).size(),
                     json.at("tessera").as_string(),
                     skipped.empty() ? "none" : fmt::format("{}", fmt::join(skipped, ", ")));
}

}  // namespace tessera
