// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/attention/attention_choice.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "plugins/cuda/device/setting_words.h"
#ifdef TESSERA_HAS_CUDNN
#include "plugins/cuda/attention/cudnn_attention.h"
#endif

namespace tessera::cuda {
namespace {

#ifndef TESSERA_HAS_CUDNN
// This build has no header of cuDNN.
std::string cudnn_why_not(Context&) {
  return "this build was configured without cudnn.h of cuDNN 9.8 or newer; install it and "
         "configure again";
}
std::string cudnn_version(Context&) { return ""; }
std::unique_ptr<Kernel> make_cudnn_attention(const Graph&, const Node&, Context&, bool,
                                             std::unique_ptr<CudaKernel> own) {
  return own;
}
#endif

// "attention by cuDNN 9.19.0 (…)".
std::string describe_attention(Context& context) {
  const AttentionSettings settings = attention_settings();
  if (!settings.cudnn) return "attention by own kernels";
  const std::string why_not = cudnn_why_not(context);
  if (!why_not.empty()) return fmt::format("no attention by cuDNN ({})", why_not);
  return fmt::format("attention by cuDNN {} where it can be{}", cudnn_version(context),
                     settings.deterministic ? "" : ", with gradients that are not deterministic");
}

const DescriptionRegistrar kDescribeAttention{describe_attention};

}  // namespace

AttentionSettings attention_settings() {
  AttentionSettings settings;
  for (const std::string& word :
       setting_words(kAttentionVariable, {"own", "cudnn", "nondeterministic"})) {
    if (word == "nondeterministic")
      settings.deterministic = false;
    else
      settings.cudnn = word == "cudnn";
  }
  return settings;
}

std::unique_ptr<Kernel> choose_attention(const Graph& graph, const Node& node, Context& context,
                                         std::unique_ptr<CudaKernel> own) {
  const AttentionSettings settings = attention_settings();
  if (!settings.cudnn) return own;
  if (const std::string why_not = cudnn_why_not(context); !why_not.empty())
    fail("{}=cudnn: {}; use {}=own", kAttentionVariable, why_not, kAttentionVariable);
  return make_cudnn_attention(graph, node, context, settings.deterministic, std::move(own));
}

}  // namespace tessera::cuda
