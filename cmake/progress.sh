# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by launch.sh: shows the progress of an installation or a build, from its log. On a
# terminal it updates one line; elsewhere it prints a line every 30 seconds.

# minutes SECONDS: "45 s", "3 min 5 s".
minutes() {
  if (($1 < 60)); then printf '%d s' "$1"; else printf '%d min %d s' $(($1 / 60)) $(($1 % 60)); fi
}

# steps_of LOG: "done all" from the last line of ninja that counts steps, or from apt's messages
# that it has fetched, unpacked and set up each new package. Nothing if there are none yet.
steps_of() {
  awk '/^\[[0-9]+\/[0-9]+\] / { split(substr($1, 2), n, /[\/\]]/); done = n[1]; all = n[2] }
       / newly installed, / { for (i = 2; i <= NF; ++i) if ($i == "newly") packages = $(i - 1)
                              fetched = unpacked = set = 0 }
       /^Get:/ { ++fetched }
       /^Unpacking / { ++unpacked }
       /^Setting up / { ++set }
       END { if (packages > 0) {
               if (unpacked > 0 || fetched > packages) fetched = packages
               done = fetched + unpacked + set; all = 3 * packages
             }
             if (all > 0) print (done > all ? all : done), all }' "$1" 2>/dev/null
}

# progress_text WHAT SECONDS [DONE ALL]: "building: 12 of 95 steps, 40 s, about 4 min 30 s left".
progress_text() {
  local what=$1 elapsed=$2 done=${3-} all=${4-}
  if [[ -z $all ]]; then
    echo "$what: $(minutes "$elapsed")"
    return
  fi
  local left=''
  # The first steps are not representative.
  ((elapsed >= 10 && done * 10 >= all)) &&
    left=", about $(minutes $((elapsed * (all - done) / done))) left"
  echo "$what: $done of $all steps, $(minutes "$elapsed")$left"
}

# watch_progress WHAT LOG: shows progress until it is killed or the script that started it has
# ended.
watch_progress() {
  local what=$1 log=$2 begun=$SECONDS launcher=$$ said=0 columns text steps
  # shellcheck disable=SC2064  # Expanded now, on purpose.
  trap 'kill "$nap" 2>/dev/null; exit 0' TERM
  while kill -0 "$launcher" 2>/dev/null; do
    sleep 1 &
    nap=$!
    wait "$nap"
    local elapsed=$((SECONDS - begun))
    if [[ -t 2 ]]; then
      read -r _ columns < <(stty size <&2 2>/dev/null) && ((columns > 0)) || columns=80
    elif ((elapsed < said + 30)); then
      continue
    fi
    said=$elapsed
    read -r -a steps < <(steps_of "$log") || steps=()
    text="${0##*/}: $(progress_text "$what" "$elapsed" "${steps[@]}")"
    if [[ -t 2 ]]; then
      printf '\r%s\e[K' "${text:0:$((columns - 1))}" >&2
    else
      printf '%s\n' "$text" >&2
    fi
  done
  clear_progress
}

clear_progress() {
  [[ ! -t 2 ]] || printf '\r\e[K' >&2
}

# with_progress WHAT LOG COMMAND…: runs the command with its output in the log.
with_progress() {
  local what=$1 log=$2 watcher result
  shift 2
  : >"$log"
  watch_progress "$what" "$log" 9>&- &  # Without the lock: it may end a second later.
  watcher=$!
  # shellcheck disable=SC2064  # Expanded now, on purpose.
  trap "end_progress $watcher; say 'stopped'; exit 130" INT
  "$@" >"$log" 2>&1
  result=$?
  end_progress "$watcher"
  trap - INT
  return "$result"
}

end_progress() {
  kill "$1" 2>/dev/null
  wait "$1" 2>/dev/null
  clear_progress
}
