// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/config/set_file.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/hparams/text.h"
#include "core/hparams/tree.h"
#include "core/io/file.h"

namespace tessera {

std::vector<std::string> read_set_file(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file))
    fail("--set_file={}: {}; expected a file such as the search.toml of --search", file.string(),
         std::filesystem::exists(file) ? "is not a file" : "does not exist");
  const Tree tree = parse_toml(read_file(file), file.string());
  const Tree* list = tree.find("set");
  if (tree.keys.size() != 1 || list == nullptr || !list->is_list())
    fail("--set_file={}: expected one list, set = [\"path=value\", …], and nothing else",
         file.string());
  std::vector<std::string> sets;
  for (const Tree& item : list->items) {
    if (item.kind != Tree::Kind::kString)
      fail("--set_file={}: set[{}] is {}, expected a string such as \"strategy=fsdp\"",
           file.string(), sets.size(), item.value_text());
    sets.push_back(item.text);
  }
  return sets;
}

std::string set_file_text(const std::vector<std::string>& sets, std::string_view heading) {
  std::string text;
  for (size_t begin = 0; begin < heading.size();) {
    const size_t end = std::min(heading.find('\n', begin), heading.size());
    text += fmt::format("# {}\n", heading.substr(begin, end - begin));
    begin = end + 1;
  }
  text += "set = [\n";
  for (const std::string& each : sets) text += fmt::format("  {},\n", quoted_text(each));
  return text + "]\n";
}

}  // namespace tessera
