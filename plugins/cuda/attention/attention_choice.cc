// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/attention/attention_choice.h"

#include <atomic>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/terminal.h"
#include "core/ops/attention.h"
#include "plugins/cuda/device/choices.h"
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
std::unique_ptr<CudaKernel> make_cudnn_attention(const Graph&, const Node&, Context&,
                                                 std::unique_ptr<CudaKernel>) {
  return nullptr;
}
#endif

// "attention by cuDNN 9.19.0 (…)".
std::string describe_attention(Context& context) {
  const AttentionSetting setting = attention_setting();
  if (setting == AttentionSetting::kOwn) return "attention by own kernels";
  const std::string why_not = cudnn_why_not(context);
  if (!why_not.empty()) return fmt::format("attention by own kernels ({})", why_not);
  const bool checked = setting == AttentionSetting::kChecked;
  return fmt::format("attention by cuDNN {} where it {}", cudnn_version(context),
                     checked ? "agrees with own kernels and is faster" : "can be");
}

const DescriptionRegistrar kDescribeAttention{describe_attention};

// Prints on standard error, once in a process, that cuDNN is not used for a node; an Error on a
// device that rejects mismatches.
void note_own_attention(const Context& context, const Node& node, const std::string& difference) {
  if (context.rejects_mismatches())
    fail("{}: cuDNN's {}; {}=own does without cuDNN", node.op->name, difference,
         kAttentionVariable);
  static std::atomic<bool> noted = false;
  if (noted.exchange(true)) return;
  print_error(fmt::format("note: {} runs on our own kernels, which are slower: cuDNN's {}",
                          node.op->name, difference));
}

// Whether the run computes the node by cuDNN's kernel: where its results agree with those of our
// own, and it is faster. They are tried once for each shape, since all layers have the same.
bool is_chosen(const Graph& graph, const Node& node, Context& context, const OwnAttention& own,
               CudaKernel& other) {
  constexpr std::string_view kCudnn = "cudnn", kOwn = "own";
  std::string what = fmt::format("{} {}", node.op->name, node.attributes.text());
  for (const ValueId input : node.inputs) what += ' ' + graph.type(input).text_sized();
  if (!context.is_deterministic()) what += " nondeterministic";
  const auto accepts = [&](const std::string& choice) {
    return choice == kCudnn || choice == kOwn;
  };
  const auto choose = [&] {
    const auto [difference, is_faster] = try_attention(graph, node, context, own, other);
    if (!difference.empty()) note_own_attention(context, node, difference);
    return std::string(is_faster ? kCudnn : kOwn);
  };
  const std::string where = fmt::format("{}, cuDNN {}", context.name(), cudnn_version(context));
  return context.part<SharedChoices>().run->find(where, what, accepts, choose) == kCudnn;
}

}  // namespace

AttentionSetting attention_setting() {
  AttentionSetting setting = AttentionSetting::kChecked;
  for (const std::string& word : setting_words(kAttentionVariable, {"own", "cudnn"}))
    setting = word == "cudnn" ? AttentionSetting::kCudnn : AttentionSetting::kOwn;
  return setting;
}

std::unique_ptr<Kernel> choose_attention(const Graph& graph, const Node& node, Context& context,
                                         const OwnAttention& own) {
  const AttentionSetting setting = attention_setting();
  const auto own_kernel = [&] { return own.kernel(graph, node, context); };
  const bool is_shifted = attention_window(node.attributes) > 0 || first_query(node.attributes) > 0;
  if (setting == AttentionSetting::kOwn || is_shifted) return own_kernel();
  if (const std::string why_not = cudnn_why_not(context); !why_not.empty()) {
    if (setting == AttentionSetting::kChecked) return own_kernel();
    fail("{}=cudnn: {}; use {}=own", kAttentionVariable, why_not, kAttentionVariable);
  }
  auto kernel = make_cudnn_attention(graph, node, context, own_kernel());
  if (kernel == nullptr) return own_kernel();
  if (setting == AttentionSetting::kCudnn) return kernel;
  if (is_chosen(graph, node, context, own, *kernel)) return kernel;
  return own_kernel();
}

}  // namespace tessera::cuda
