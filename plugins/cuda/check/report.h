// SPDX-License-Identifier: Apache-2.0
// The report of gpu_check: report.toml, rewritten after each item, so that the next call resumes
// where this one stopped; the same as text; and the file of a campaign.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/convert.h"
#include "core/hparams/text.h"
#include "core/io/file.h"
#include "plugins/cuda/check/items.h"

namespace tessera::cuda {

struct Report {
  std::string about;     // What must agree to continue it: the build and its options.
  std::string running;   // The item that was begun,
  int64_t attempts = 0;  // so often.
  std::vector<Findings> items;
  FIELDS(about, running, attempts, items)

  const Findings* find(std::string_view item) const {
    const auto found = std::ranges::find(items, item, &Findings::name);
    return found == items.end() ? nullptr : &*found;
  }
};

template <typename Struct>
void write_toml(const std::filesystem::path& file, const Struct& values) {
  write_file_atomically(file, to_toml(to_tree(values)));
}
template <typename Struct>
Struct read_toml(const std::filesystem::path& file) {
  Struct values;
  from_tree(parse_toml(read_file(file), file.string()), values);
  return values;
}

// How many nodes each implementation computed: "own kernels 7, cuBLASLt 2".
std::string nodes_text(const std::vector<Findings>& items);

// Numbers of items by stage and of nodes by implementation, what failed, and the measurements of
// stage 5 or, with `whole`, of all.
std::string report_text(const Report& report, const std::vector<Item>& items, bool whole);

// A hardware file with what the launches of the recipes took, and the report as its comment,
// without names of the machine, its user and its folders.
std::string campaign_text(const Report& report, const std::string& text,
                          const CheckOptions& options);

}  // namespace tessera::cuda
