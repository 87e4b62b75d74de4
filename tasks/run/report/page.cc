// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/report/page.h"

#include "core/base/error.h"
#include "core/base/printable.h"

namespace tessera {
namespace {

std::string_view file_named(std::string_view name) {
  static const std::map<std::string_view, std::string_view> files = page_files();
  const auto found = files.find(name);
  CHECK(found != files.end(), "the page has no {}", name);
  return found->second;
}

// In a script "</script" and "<!--" have a meaning; JSON can write '<' by its number.
std::string in_script(std::string_view json) {
  std::string text;
  for (const char c : json) text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return text;
}

std::string scripts() {
  std::string text;
  for (const char* name : {"charts.js", "sections.js", "program_section.js", "run_page.js",
                           "comparison_page.js", "main.js"})
    text += file_named(name);
  return text;
}

}  // namespace

std::string report_page(std::string_view title, std::string_view data) {
  constexpr std::string_view kOpen = "{{", kClose = "}}";
  std::string page;
  std::string_view rest = file_named("report.html");
  for (size_t at; (at = rest.find(kOpen)) != std::string_view::npos;) {
    const size_t end = rest.find(kClose, at);
    CHECK(end != std::string_view::npos);
    const std::string_view name = rest.substr(at + kOpen.size(), end - at - kOpen.size());
    page += rest.substr(0, at);
    if (name == "title") page += markup_text(title);
    if (name == "style") page += file_named("report.css");
    if (name == "data") page += in_script(data);
    if (name == "script") page += scripts();
    rest.remove_prefix(end + kClose.size());
  }
  page += rest;
  return page;
}

}  // namespace tessera
