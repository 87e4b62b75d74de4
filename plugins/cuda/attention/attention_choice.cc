// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/attention/attention_choice.h"

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/terminal.h"
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
std::unique_ptr<CudaKernel> make_cudnn_attention(const Graph&, const Node&, Context&, bool,
                                                 std::unique_ptr<CudaKernel>) {
  return nullptr;
}
#endif

// "attention by cuDNN 9.19.0 (…)".
std::string describe_attention(Context& context) {
  const AttentionSettings settings = attention_settings();
  if (settings.kind == AttentionSettings::Kind::kOwn) return "attention by own kernels";
  const std::string why_not = cudnn_why_not(context);
  if (!why_not.empty()) return fmt::format("attention by own kernels ({})", why_not);
  const bool checked = settings.kind == AttentionSettings::Kind::kChecked;
  return fmt::format("attention by cuDNN {} where it {}{}", cudnn_version(context),
                     checked ? "agrees with own kernels" : "can be",
                     settings.deterministic ? "" : ", with gradients that are not deterministic");
}

const DescriptionRegistrar kDescribeAttention{describe_attention};

// Says on standard error, once in a process, that cuDNN is not used for a node.
void note_own_attention(const Node& node, const std::string& difference) {
  static std::atomic<bool> noted = false;
  if (noted.exchange(true)) return;
  print_error(fmt::format("note: {} runs on our own kernels, which are slower: cuDNN's {}",
                          node.op->name, difference));
}

// How cuDNN's kernel of the node differs from our own; compared once for each shape of a GPU, since
// all layers have the same.
class AttentionTrials {
 public:
  explicit AttentionTrials(Context& context) : context_(context) {}

  const std::string& difference(const Graph& graph, const Node& node, const OwnAttention& own,
                                CudaKernel& other) {
    std::string key = fmt::format("{} {}", node.op->name, node.attributes.text());
    for (const ValueId input : node.inputs) key += ' ' + graph.type(input).text_sized();
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = differences_.try_emplace(key);
    if (is_new) found->second = attention_difference(graph, node, context_, own, other);
    return found->second;
  }

 private:
  Context& context_;
  std::mutex mutex_;
  std::map<std::string, std::string> differences_;
};

}  // namespace

AttentionSettings attention_settings() {
  using Kind = AttentionSettings::Kind;
  AttentionSettings settings;
  for (const std::string& word :
       setting_words(kAttentionVariable, {"own", "cudnn", "nondeterministic"})) {
    if (word == "nondeterministic")
      settings.deterministic = false;
    else
      settings.kind = word == "cudnn" ? Kind::kCudnn : Kind::kOwn;
  }
  return settings;
}

std::unique_ptr<Kernel> choose_attention(const Graph& graph, const Node& node, Context& context,
                                         const OwnAttention& own) {
  using Kind = AttentionSettings::Kind;
  const AttentionSettings settings = attention_settings();
  const auto own_kernel = [&] { return own.kernel(graph, node, context); };
  if (settings.kind == Kind::kOwn) return own_kernel();
  if (const std::string why_not = cudnn_why_not(context); !why_not.empty()) {
    if (settings.kind == Kind::kChecked) return own_kernel();
    fail("{}=cudnn: {}; use {}=own", kAttentionVariable, why_not, kAttentionVariable);
  }
  auto kernel = make_cudnn_attention(graph, node, context, settings.deterministic, own_kernel());
  if (kernel == nullptr) return own_kernel();
  if (settings.kind == Kind::kCudnn) return kernel;
  const std::string& difference =
      context.part<AttentionTrials>().difference(graph, node, own, *kernel);
  if (difference.empty()) return kernel;
  note_own_attention(node, difference);
  return own_kernel();
}

}  // namespace tessera::cuda
