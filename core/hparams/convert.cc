// SPDX-License-Identifier: Apache-2.0
#include "core/hparams/convert.h"

namespace tessera {

template Tree to_tree(const bool&);
template Tree to_tree(const int64_t&);
template Tree to_tree(const double&);
template Tree to_tree(const std::string&);
template Tree to_tree(const std::vector<int64_t>&);
template Tree to_tree(const std::vector<double>&);
template Tree to_tree(const std::vector<std::string>&);
template Tree to_tree(const Field<bool>&);
template Tree to_tree(const Field<int64_t>&);
template Tree to_tree(const Field<double>&);
template Tree to_tree(const Field<std::string>&);
template Tree to_tree(const Field<DType>&);
template Tree to_tree(const Required<int64_t>&);
template Tree to_tree(const Required<std::string>&);
template Tree to_tree(const std::optional<int64_t>&);
template Tree to_tree(const std::optional<double>&);
template void from_tree(const TreeReader&, bool&);
template void from_tree(const TreeReader&, int64_t&);
template void from_tree(const TreeReader&, double&);
template void from_tree(const TreeReader&, std::string&);
template void from_tree(const TreeReader&, std::vector<int64_t>&);
template void from_tree(const TreeReader&, std::vector<double>&);
template void from_tree(const TreeReader&, std::vector<std::string>&);
template void from_tree(const TreeReader&, Field<bool>&);
template void from_tree(const TreeReader&, Field<int64_t>&);
template void from_tree(const TreeReader&, Field<double>&);
template void from_tree(const TreeReader&, Field<std::string>&);
template void from_tree(const TreeReader&, Field<DType>&);
template void from_tree(const TreeReader&, Required<int64_t>&);
template void from_tree(const TreeReader&, Required<std::string>&);
template void from_tree(const TreeReader&, std::optional<int64_t>&);
template void from_tree(const TreeReader&, std::optional<double>&);

}  // namespace tessera
