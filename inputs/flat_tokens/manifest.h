// SPDX-License-Identifier: Apache-2.0
// The manifest that a build stores in its token file: versions, options, the files that it read and
// the records that it left out, as JSON (docs/formats.md).
#pragma once

#include <string>
#include <vector>

#include "inputs/flat_tokens/build_inputs.h"
#include "inputs/flat_tokens/build_journal.h"

namespace tessera {

std::string manifest_of(const TokenBuild& build, const BuildSettings& settings,
                        const SkippedRecords& skipped);

// Returns a line for each difference, for users; none if two manifests are equal.
std::vector<std::string> manifest_differences(const std::string& first, const std::string& second);

// Describes a manifest on one line: "3 files, by Tessera 0.1.0; skipped: 2 empty, 1 not UTF-8".
std::string manifest_summary(const std::string& manifest);

}  // namespace tessera
