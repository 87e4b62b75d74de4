// SPDX-License-Identifier: Apache-2.0
// Linked into every plugin: the stamp of its build. The loader reads it from the file before it
// loads the plugin (plugins/loader.h).
#include "tessera_stamp.h"

extern "C" {
[[gnu::used, gnu::visibility("default")]] const char* tessera_plugin_stamp() {
  return tessera::kPluginStamp;
}
}
