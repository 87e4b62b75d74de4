// SPDX-License-Identifier: Apache-2.0
// What --search prints and writes: a table of the frontier, the best candidate beside the recipe,
// refusals, counts; search.json; and a drawing of time against memory.
#pragma once

#include <string>
#include <vector>

#include "tasks/search/search.h"

namespace tessera {

struct SearchTexts {
  std::string experiment;  // "c4.Spmd1B"
  std::string command;     // The user's command without --search: "./runexp --exp=c4.Spmd1B".
  std::string set_file;    // Where the settings were written; or empty.
};

// At most 100 columns, but for the command at the end.
std::string search_text(const SearchResult& result, const SearchOptions& options,
                        SettingStyle style, const SearchTexts& texts);

// docs/formats.md lists its members.
std::string search_json(const SearchResult& result, const SearchOptions& options,
                        SettingStyle style);

// Time against memory: planned candidates, the frontier, the recipe and the memory of a device.
std::string search_svg(const SearchResult& result, const SearchOptions& options);

// Why no candidate fits, with the one that needs least memory.
std::string nothing_fits(const SearchResult& result, const SearchOptions& options);

struct SearchCounts {
  int64_t planned = 0, too_large = 0;  // too_large: planned ones that do not fit the memory.
  int64_t refused = 0;
};
SearchCounts counts_of(const SearchResult& result, const SearchOptions& options);

// Refusals, large groups first. Those that differ in numbers only are one, with the first's reason.
std::vector<LeftOut> refusal_groups(const SearchResult& result);

}  // namespace tessera
