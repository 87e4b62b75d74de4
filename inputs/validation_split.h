// SPDX-License-Identifier: Apache-2.0
// Decides which data belongs to the validation split.
#pragma once

#include <string_view>

namespace tessera {

// Returns whether a document belongs to the split, which holds about `fraction` of all distinct
// texts. The text alone decides, so the split does not depend on order, shard layout or format, and
// equal documents are in the same split. For whole files `text` is the file's name
// (TextFile::name), so no file changes its split when others are added.
bool in_validation_split(std::string_view text, double fraction);

}  // namespace tessera
