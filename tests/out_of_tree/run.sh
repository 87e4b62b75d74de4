#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD: installs this build, builds the plugin of this folder with it and trains, also with
# other mesh axes. Then checks that the plugin is refused if it has the stamp of another build.
set -euo pipefail
build=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/tessera" >/dev/null
cmake -S "$here" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
      -DCMAKE_PREFIX_PATH="$work/tessera" >/dev/null
cmake --build "$work/build"

# No installed file and no plugin searches the current directory for libraries.
# Not a pipeline, in which a failing readelf would make the test pass.
find "$work/tessera" "$work/build" -type f \( -name '*.so*' -o -path '*/tessera/bin/*' \) \
  -exec env LC_ALL=C readelf -W -d {} + >"$work/paths.txt"
for file in runexp flat_tokens; do grep -q "^File: .*/tessera/bin/$file$" "$work/paths.txt"; done
grep -q RUNPATH "$work/paths.txt"
if grep -E 'R(UN)?PATH.*\[([^]]*:)?[^/$]' "$work/paths.txt"; then exit 1; fi

# Moves the installation, so that no file of the build is found by accident.
mv "$work/tessera" "$work/moved"
runexp=$work/moved/bin/runexp
plugins=$work/build/lib/tessera/experiments
cd "$work"
"$runexp" --list --plugin_path="$plugins" | tee list.txt
grep -q '^elsewhere.Tiny .*a plugin outside the tree' list.txt
grep -q '^quickstart.SourceLm' list.txt
activation=task.model.lm_tpl.stacked_transformer_tpl.block_tpl.ffn_tpl.activation_tpl
TESSERA_PLUGIN_PATH=$plugins "$runexp" --exp=Tiny --set model_dims=32 \
  --set "$activation=SignedSquare" --job_log_dir="$work/run"
grep -q 'type = "SignedSquare"  *# --set' run/hparams.toml
[[ $(grep -c '"loss"' run/metrics.jsonl) -ge 5 ]]
grep -q '"eval/validation/worst/loss": [1-9]' run/metrics.jsonl

# With the plugin's mesh axes and rules, the loss equals that of one device.
"$runexp" --exp=Sharded --plugin_path="$plugins" --devices=4 --set 'ici_mesh_shape=[2,2]' \
  --job_log_dir="$work/four"
"$runexp" --exp=Tiny --plugin_path="$plugins" --job_log_dir="$work/one"
loss() { sed -n 's/.*"step": 5,.* "loss": \([0-9.]\{6\}\).*/\1/p' "$work/$1/metrics.jsonl"; }
[[ -n $(loss one) && $(loss four) == "$(loss one)" ]]

# A family of Hugging Face models that the plugin registers.
olmoe=$here/../golden/hugging_face/olmoe
pretrained=(--exp=hf.Pretrained --plugin_path="$plugins" --set path="$olmoe" --job_log_dir="$work/olmoe")
"$runexp" "${pretrained[@]}" --mode=import --input="$olmoe"
"$runexp" "${pretrained[@]}" --mode=export --output="$work/olmoe_again"
cmp "$olmoe/config.json" "$work/olmoe_again/config.json"

# The installed hardware files are found.
"$runexp" --exp=Tiny --plugin_path="$plugins" --mode=plan --hardware=h200 | grep 'NVIDIA H200 SXM'

# A new project finds the installed package.
"$runexp" new letters
(cd letters && cmake --preset release)
grep -q "^Tessera_DIR.*=$work/moved/lib/cmake/Tessera$" letters/build/CMakeCache.txt

# Changes one byte of the plugin's stamp, which simulates a plugin of another build.
mkdir other
sed 's/tessera-plugin-stamp:0\.1/tessera-plugin-stamp:0.0/' "$plugins/elsewhere.so" >other/elsewhere.so
if "$runexp" --exp=elsewhere.Tiny --plugin_path=other --dry_run 2>error.txt; then exit 1; fi
cat error.txt
[[ $(wc -l <error.txt) -eq 1 ]]
grep -q 'plugin of another build' error.txt
