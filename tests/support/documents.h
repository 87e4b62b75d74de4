// SPDX-License-Identifier: Apache-2.0
// The fenced blocks of README.md and docs/*.md, with what an annotation before a block says about
// testing it (docs/testing.md, "The documents"): an HTML comment, which a rendered page does not
// show.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

struct DocumentBlock {
  std::string document;  // "docs/data.md"
  int line = 0;          // Of its first line of text.
  std::string language;  // "sh"; empty if the fence names none.
  std::string text;      // Without the indentation of its fence.
  // Of each `<!-- test: KEY: VALUE -->` or `<!-- test: KEY -->` directly before it.
  std::vector<std::pair<std::string, std::string>> annotations;

  std::string place() const;  // "docs/data.md:22"
  bool has(std::string_view key) const;
  std::string value(std::string_view key) const;  // Of the first; "" without one.
  std::vector<std::string> values(std::string_view key) const;
};

// All blocks, documents in the order of their names after README.md. Error for a block that does
// not end and for an annotation that is before no block.
std::vector<DocumentBlock> document_blocks(const std::filesystem::path& root);

// Those of one text.
std::vector<DocumentBlock> blocks_of(const std::string& document, const std::string& text);

// The file below `root` that the first line of a block names as the one it quotes, "//
// layers/feed_forward/feed_forward.h" or "# tests/x/CMakeLists.txt"; nullopt if it names none that
// is there.
std::optional<std::filesystem::path> quoted_file(const DocumentBlock& block,
                                                 const std::filesystem::path& root);

// Whether a block is in the text of the file that it quotes. "…" stands for lines, or a part of
// one, that are left out; spaces and line breaks do not count.
bool is_quote(const DocumentBlock& block, const std::string& file_text);

// What is wrong with how a block is tested; empty if nothing is: an unknown language or annotation,
// a reason that is missing, or text that is neither checked nor said not to be.
std::string block_problem(const DocumentBlock& block, const std::filesystem::path& root);

}  // namespace tessera
