// SPDX-License-Identifier: Apache-2.0
// Linked into every plugin: the stamp of the build it belongs to, which the loader reads out of the
// file before it opens it (plugins/build_stamp.h).
#include "tessera_stamp.h"

extern "C" {
[[gnu::used, gnu::visibility("default")]] const char* tessera_plugin_stamp() {
  return tessera::kPluginStamp;
}
}
