#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu_check_archive.sh BUILD NVRTC: packs the archive of gpu_check and runs its campaign on the
# virtual GPU in a folder that is the root of the file system: beside the archive it has a shell,
# tar and glibc, but no compiler, CMake, toolkit, sources, build and other libraries. Then checks
# that the file to send back names no user, and that runexp reads it as launch costs.
set -euo pipefail
build=$1
unshare --user --map-root-user --mount true 2>/dev/null ||
  { echo "no user namespaces here (unshare --user --mount)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$(cd "$(dirname "$0")" && pwd)
cmake -DBUILD="$build" -DNVRTC="$2" -DOUTPUT="$work/gpu_check-test.tar.gz" \
      -P "$here/../../cmake/GpuCheckArchive.cmake"

root=$work/root
mkdir -p "$root"/{proc,dev,tmp,opt,home/maria}
for program in sh env tar gzip; do
  file=$(command -v $program)
  mkdir -p "$root/bin"
  cp -L "$file" "$root/bin/"
  ldd "$file" | grep -o '/[^ ]*' | xargs -I{} cp -L --parents {} "$root"
done
ldd "$build/bin/gpu_check" "$2" | grep -oE '/[^ ]*/lib(c|m|dl|rt|pthread|resolv)\.so[^ ]*' | sort -u |
  xargs -I{} cp -L --parents {} "$root"
[[ ! -e $root$build && ! -e $root/usr/local/cuda && ! -e $root/lib/x86_64-linux-gnu/libfmt.so.9 ]]
cp -L "$build/lib/virtual_gpu/libcuda.so.1" "$root/opt/"
tar -xzf "$work/gpu_check-test.tar.gz" -C "$root/home/maria"

# Runs a command there, as a user of the name maria.
there() {
  unshare --user --map-root-user --mount sh -c '
    mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' \
    "$root" /bin/env -i PATH=/bin USER=maria HOME=/home/maria TESSERA_VIRTUAL_GPU_PRINT=0 \
    TESSERA_CUDA_DRIVER=/opt/libcuda.so.1 "$@"
}
there /bin/sh -c "cd /home/maria/gpu_check-test && ./gpu_check --campaign --tiny \
  --filter='versions|launch softmax|op softmax$|preset'" | tee "$work/out.txt"
grep -q '^to send back: .*/campaign.toml$' "$work/out.txt"
[[ $(grep -c '^5 preset GPT-2 tiny.* passed ' "$work/out.txt") -eq 3 ]]
file=$root/home/maria/gpu_check-test/runs/gpu_check/campaign.toml
if grep -e maria -e "$(hostname)" "$file"; then exit 1; fi

"$build/bin/runexp" --exp=bench.Gpt2Base --mode=plan --hardware="$file" --set num_layers=1 \
  --set model_dims=16 --set num_heads=2 --set vocab_size=264 --set seq_len=16 \
  --set global_batch_size=2 --set compute_dtype=bf16 \
  --set task.model.lm_tpl.stacked_transformer_tpl.block_tpl.ffn_tpl.activation_tpl.approximate=true |
  grep 'launch costs: 100.0 % of the time of launches is measured'
