#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a pipeline schedule from its text form (core/schedules/text.cc) on standard input:

    pipelines.py [TIME] < schedule.txt > docs/images/pipeline_gpipe.svg

A task of one chunk takes one unit of time for the forward pass and one for each of the two parts
of the backward pass. TIME is the time that the width shows; default: that of the schedule."""
import re
import sys

LEFT, TOP, WIDTH, RIGHT, BOTTOM, STEP, HEIGHT = 62, 50, 820, 14, 26, 28, 22  # In pixels.
STYLES = {"F": ("forward", (59, 111, 212), 1), "B": ("backward", (184, 92, 0), 2),
          "I": ("backward of input", (178, 58, 94), 1),
          "W": ("backward of weight", (47, 125, 79), 1)}


def read_table(lines):
    """The name of the schedule; for each stage its tasks in order, (work, microbatch, chunk); and
    all tasks by tick, (tick, stage, task)."""
    name = re.match(r"# (.*?): ", lines[0]).group(1)
    stages, by_tick = [], []
    for line in lines:
        cells = line.split("#")[0].partition(":")[2].split()
        if not cells:
            continue
        stages.append([])
        for tick, cell in enumerate(cells):
            if cell != ".":
                batch, _, chunk = cell[1:].partition(".")
                stages[-1].append((cell[0], int(batch), int(chunk or 0)))
                by_tick.append((tick, len(stages) - 1, stages[-1][-1]))
    return name, stages, sorted(by_tick)


def needed(task, stage, stages):
    """The tasks, as (stage, task), that must end before this one starts."""
    work, batch, chunk = task
    last_chunk = max(t[2] for t in stages[0])
    if work == "W":
        return [(stage, ("I", batch, chunk))]
    if work == "F":
        if stage > 0:
            return [(stage - 1, ("F", batch, chunk))]
        return [(len(stages) - 1, ("F", batch, chunk - 1))] if chunk > 0 else []
    own = [(stage, ("F", batch, chunk))]
    if stage < len(stages) - 1:
        return own + [(stage + 1, (work, batch, chunk))]
    return own + ([(0, (work, batch, chunk + 1))] if chunk < last_chunk else [])


def timed(stages):
    """(stage, task) -> (start, end), if each stage runs its tasks in order as soon as it can."""
    part = 1 / (1 + max(t[2] for t in stages[0]))
    times, free, position = {}, [0.0] * len(stages), [0] * len(stages)
    while any(position[s] < len(stages[s]) for s in range(len(stages))):
        for stage, tasks in enumerate(stages):
            while position[stage] < len(tasks):
                task = tasks[position[stage]]
                before = needed(task, stage, stages)
                if any(b not in times for b in before):
                    break
                start = max([free[stage]] + [times[b][1] for b in before])
                free[stage] = start + part * STYLES[task[0]][2]
                times[stage, task] = (start, free[stage])
                position[stage] += 1
    return times


def colour(work, chunk):
    light = max(1 - 0.22 * chunk, 0.35)
    return "#%02x%02x%02x" % tuple(int(part * light) for part in STYLES[work][1])


def box(x, y, width, height, fill):
    return f'<rect x="{x:.2f}" y="{y:.0f}" width="{width:.2f}" height="{height:.0f}" {fill}/>\n'


def words(x, y, text, end=False):
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x:.2f}" y="{y:.0f}" class="page" fill="#33333b"{anchor}>{text}</text>\n'


def legend(name, stages):
    svg, x = words(LEFT, 16, name), LEFT
    for work, (meaning, _, _) in STYLES.items():
        if any(t[0] == work for tasks in stages for t in tasks):
            svg += box(x, 26, 11, 11, f'fill="{colour(work, 0)}"') + words(x + 16, 36, meaning)
            x += 34 + 6.6 * len(meaning)
    return svg + (words(x, 36, "darker: later chunks") if any(t[2] for t in stages[0]) else "")


def drawing(name, stages, by_tick, shown):
    times = timed(stages)
    finish = max(end for _, end in times.values())
    scale = WIDTH / (shown or finish)
    bottom, right, width = TOP + STEP * len(stages), LEFT + finish * scale, LEFT + WIDTH + RIGHT
    svg = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + BOTTOM}" '
           f'viewBox="0 0 {width} {bottom + BOTTOM}" font-size="11" '
           'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">\n'
           "<style>@media (prefers-color-scheme:dark){.page{fill:#d8d8e0}}</style>\n")
    svg += legend(name, stages)
    for stage in range(len(stages)):
        svg += words(LEFT - 8, TOP + STEP * stage + 15, f"stage {stage}", end=True)
        svg += box(LEFT, TOP + STEP * stage, right - LEFT, HEIGHT,
                   'fill="none" stroke="#9a9aa8" stroke-width="0.5"')
    for _, stage, (work, batch, chunk) in by_tick:
        start, end = times[stage, (work, batch, chunk)]
        left, top, size = LEFT + start * scale, TOP + STEP * stage, (end - start) * scale - 1
        svg += box(left, top, size, HEIGHT, f'fill="{colour(work, chunk)}"')
        if size >= 2 + 6 * len(str(batch)):
            svg += (f'<text x="{left + size / 2:.2f}" y="{top + 15:.0f}" font-size="10" '
                    f'fill="#ffffff" text-anchor="middle">{batch}</text>\n')
    busy = sum(end - start for start, end in times.values())
    idle = 100 * (1 - busy / (finish * len(stages)))
    svg += words(LEFT, bottom + 12, "time 0")
    return svg + words(right, bottom + 12, f"{finish:g}, idle {idle:.0f} %", end=True) + "</svg>\n"


if __name__ == "__main__":
    TABLE = read_table(sys.stdin.read().splitlines())
    sys.stdout.write(drawing(*TABLE, float(sys.argv[1]) if len(sys.argv) > 1 else None))
