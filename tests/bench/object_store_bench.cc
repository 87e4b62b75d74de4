// SPDX-License-Identifier: Apache-2.0
// For tests/bench/object_store.py: `read URL` reads an object from its beginning to its end as a
// text input does, `write FILE URL` uploads a file.
#include <cstdio>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/storage/storage.h"

int main(int count, char** arguments) {
  const std::string_view mode = count > 1 ? arguments[1] : "";
  if (mode == "read" && count == 3) {
    const tessera::ByteFile file = tessera::ByteFile::open(arguments[2]);
    std::vector<std::byte> bytes(size_t{1} << 20);
    for (int64_t at = 0; const size_t got = file.read_some_at(at, bytes);)
      at += static_cast<int64_t>(got);
  } else if (mode == "write" && count == 4) {
    tessera::storage_of(arguments[3]).upload(arguments[3], arguments[2]);
  } else {
    std::puts("usage: object_store_bench read URL | write FILE URL");
    return 1;
  }
}
