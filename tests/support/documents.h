// SPDX-License-Identifier: Apache-2.0
// The fenced blocks of README.md and docs/*.md with their annotations, HTML comments before a block
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

// All blocks: README.md first, then the documents by name. Error for a block without an end and for
// an annotation without a block.
std::vector<DocumentBlock> document_blocks(const std::filesystem::path& root);

// The blocks of one text.
std::vector<DocumentBlock> blocks_of(const std::string& document, const std::string& text);

// The file below `root` that the first line of a block names as the one it quotes, "//
// layers/feed_forward/feed_forward.h" or "# tests/x/CMakeLists.txt"; nullopt if it names none that
// is there.
std::optional<std::filesystem::path> quoted_file(const DocumentBlock& block,
                                                 const std::filesystem::path& root);

// Whether a block is in the text of the file that it quotes. "…" stands for omitted lines or parts
// of a line. Spaces and line breaks are ignored.
bool is_quote(const DocumentBlock& block, const std::string& file_text);

// The error in how a block is tested, or "": an unknown language or annotation, a missing reason,
// or text that is neither tested nor skipped.
std::string block_problem(const DocumentBlock& block, const std::filesystem::path& root);

}  // namespace tessera
