#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the loss curve of a run as SVG, from its metrics.jsonl; needs nothing but Python.

    docs/images/loss_curve.py runs/quickstart.SourceLm > docs/images/loss_curve.svg
"""

import json
import sys
from pathlib import Path

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 58, 150, 24, 44
TRAIN, EVAL, INK, GRID = "#7aa6d8", "#c2410c", "#6b7280", "#d1d5db"


def read(run):
    train, evaluated = [], []
    for line in (Path(run) / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if "loss" in entry:
            train.append((entry["step"], entry["loss"]))
        for key, value in entry.items():
            if key.startswith("eval/") and key.endswith("/log_pplx"):
                evaluated.append((entry["step"], value))
    if not train:
        sys.exit(f"{run}: no train lines in metrics.jsonl")
    return train, evaluated


def draw(train, evaluated):
    last = train[-1][0]
    top = 6.0
    x = lambda step: LEFT + (WIDTH - LEFT - RIGHT) * step / last
    y = lambda loss: TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(loss, top) / top)
    path = lambda points: "M" + " L".join(f"{x(s):.1f} {y(v):.1f}" for s, v in points)
    text = lambda px, py, words, anchor="middle", colour=INK: (
        f'<text x="{px:.1f}" y="{py:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>')
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="system-ui, sans-serif" font-size="13">']
    for tick in range(0, 7):
        parts.append(f'<path d="M{LEFT} {y(tick):.1f} H{WIDTH - RIGHT}" stroke="{GRID}" stroke-width="0.7"/>')
        parts.append(text(LEFT - 10, y(tick) + 4, str(tick), "end"))
    for quarter in range(0, 5):
        step = last * quarter // 4
        parts.append(text(x(step), HEIGHT - BOTTOM + 20, f"{step:,}"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "step"))
    parts.append(f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
                 f'text-anchor="middle" fill="{INK}">nats per byte</text>')
    parts.append(f'<path d="{path(train)}" fill="none" stroke="{TRAIN}" stroke-width="1.4"/>')
    parts.append(text(WIDTH - RIGHT + 10, y(train[-1][1]) + 18, f"train {train[-1][1]:.2f}", "start", TRAIN))
    if evaluated:
        parts.append(f'<path d="{path(evaluated)}" fill="none" stroke="{EVAL}" stroke-width="1.6"/>')
        parts += [f'<circle cx="{x(s):.1f}" cy="{y(v):.1f}" r="3.5" fill="{EVAL}"/>' for s, v in evaluated]
        parts.append(text(WIDTH - RIGHT + 10, y(evaluated[-1][1]) - 6, f"held out {evaluated[-1][1]:.2f}",
                          "start", EVAL))
    return "\n".join(parts + ["</svg>"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(draw(*read(sys.argv[1])))
