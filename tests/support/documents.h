// SPDX-License-Identifier: Apache-2.0
// The fenced blocks of README.md and docs/*.md with their annotations: HTML comments before a block
// that say how it is tested (docs/testing.md, "The documents").
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
  int line = 0;          // Line number of its first line of text.
  std::string language;  // "sh"; empty if the fence names none.
  std::string text;      // The text without the indentation of its fence.
  // Key and value of each `<!-- test: KEY: VALUE -->` or `<!-- test: KEY -->` directly before it.
  std::vector<std::pair<std::string, std::string>> annotations;

  std::string place() const;  // "docs/data.md:22"
  bool has(std::string_view key) const;
  std::string value(std::string_view key) const;  // The first value; "" if there is no such key.
  std::vector<std::string> values(std::string_view key) const;
};

// All blocks: README.md first, then the documents by name. Error for an unterminated block and for
// an annotation without a block.
std::vector<DocumentBlock> document_blocks(const std::filesystem::path& root);

// The blocks of one text.
std::vector<DocumentBlock> blocks_of(const std::string& document, const std::string& text);

// The file below `root` that a block quotes. The block's first line names it: "//
// layers/feed_forward/feed_forward.h" or "# tests/x/CMakeLists.txt". nullopt if it names no
// existing file.
std::optional<std::filesystem::path> quoted_file(const DocumentBlock& block,
                                                 const std::filesystem::path& root);

// Whether the quoted file contains the block. "…" stands for omitted text. Spaces and line breaks
// are ignored.
bool is_quote(const DocumentBlock& block, const std::string& file_text);

// The error in a block's annotations, or "": an unknown language or annotation, a missing reason,
// or text that is neither tested nor skipped.
std::string block_problem(const DocumentBlock& block, const std::filesystem::path& root);

}  // namespace tessera
