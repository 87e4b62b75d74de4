// SPDX-License-Identifier: Apache-2.0
// The page of a report as one HTML file that needs nothing else: its style, its scripts and its
// data. The parts are in tasks/run/report/page, compiled into the program.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace tessera {

// The files of tasks/run/report/page (cmake/EmbedFiles.cmake).
std::map<std::string_view, std::string_view> page_files();

// The page with this title and data, which is JSON. Whatever text the data contains, it ends
// neither the page's scripts nor its title.
std::string report_page(std::string_view title, std::string_view data);

}  // namespace tessera
