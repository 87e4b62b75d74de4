// SPDX-License-Identifier: Apache-2.0
// Reads the replies of object stores: XML without attributes or mixed content.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Returns the texts between <tag> and </tag>, in order, as they are written.
std::vector<std::string_view> xml_elements(std::string_view xml, std::string_view tag);
// Returns the first of them, with its references (&amp;, &#38;) replaced; "" if there is none.
std::string xml_text(std::string_view xml, std::string_view tag);
// Replaces the characters that XML reserves by references.
std::string xml_escaped(std::string_view text);

}  // namespace tessera
