#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# new_project.sh RUNEXP: tests that the project of `runexp new` builds with the commands of its
# README, that its tests pass, and that it trains and decodes.
set -euo pipefail
runexp=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"$runexp" new 'some where/letters' | tee next.txt
grep -qF "  cd 'some where/letters'" next.txt
cd 'some where/letters'
if grep -r 'my_project\|SPDX\|/where/tessera' .; then exit 1; fi

# The commands of its README, with a small number of steps.
commands=$(sed -n '/^```sh$/,/^```$/p' README.md | sed '/^```/d')
[[ $(wc -l <<<"$commands") -eq 6 ]]
commands=${commands//--exp=letters.Sorter/--exp=letters.Sorter --set num_train_steps=5}
bash -euxc "$commands" | tee log.txt
grep -q '100% tests passed, 0 tests failed out of 2' log.txt
grep -q -- '--- continuation' log.txt
[[ $(grep -c '"loss"' runs/letters.Sorter/metrics.jsonl) -ge 5 ]]

# The command that `runexp new` printed.
command=$(sed -n 's/^  \(.*--exp=.*\)/\1/p' "$work/next.txt")
bash -euc "$command --describe" >describe.txt
grep -q 'ffn_tpl = letters.Ffn .*# .*/letters/sorter.cc:' describe.txt
