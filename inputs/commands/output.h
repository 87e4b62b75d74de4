// SPDX-License-Identifier: Apache-2.0
// The token file that a command writes, --output=FILE.
#pragma once

#include "inputs/commands/command.h"
#include "inputs/flat_tokens_file.h"

namespace tessera {

// UsageError if the file exists and is not a token file of this tokenizer, unless --overwrite is
// given.
void check_output(const Arguments& arguments, const TokenizerIdentity& identity);

}  // namespace tessera
