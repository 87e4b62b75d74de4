# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG without other libraries, in colours that can be read on white and on black."""
import html
import math

INK, GRID = "#7a808a", "#8a8f98"
WIDTH, HEIGHT = 380, 300  # Size of a panel.
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 30, 46


def text(x, y, words, anchor="middle", colour=INK, size=12, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" '
            f'font-size="{size}" font-weight="{weight}">{html.escape(words)}</text>')


class Plot:
    """One panel. Ranges are (low, high); ticks are numbers, or pairs of a number and its words."""

    def __init__(self, title, x_title, y_title, x_range, y_range, ticks_x, ticks_y, log_x=False,
                 log_y=False, width=WIDTH, height=HEIGHT):
        self.width, self.height, self.parts = width, height, []
        self.x_range, self.y_range, self.log_x, self.log_y = x_range, y_range, log_x, log_y
        for tick, words in map(labelled, ticks_y):
            self.parts.append(f'<path d="M{LEFT} {self.y(tick):.1f} H{width - RIGHT}" '
                              f'stroke="{GRID}" stroke-width="0.5" stroke-opacity="0.45"/>')
            self.parts.append(text(LEFT - 7, self.y(tick) + 4, words, "end"))
        for tick, words in map(labelled, ticks_x):
            self.parts.append(text(self.x(tick), height - BOTTOM + 17, words))
        self.parts.append(text(LEFT, 17, title, "start", size=13, weight="bold"))
        self.parts.append(text((LEFT + width - RIGHT) / 2, height - 8, x_title))
        middle = (TOP + height - BOTTOM) / 2
        self.parts.append(f'<g transform="translate(14 {middle:.1f}) rotate(-90)">'
                          + text(0, 0, y_title) + "</g>")

    def x(self, value):
        return LEFT + (self.width - LEFT - RIGHT) * share(value, self.x_range, self.log_x)

    def y(self, value):
        return TOP + (self.height - TOP - BOTTOM) * (1 - share(value, self.y_range, self.log_y))

    def path(self, points):
        return "M" + " L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)

    def area(self, points, colour=GRID, opacity=0.22):
        inside = [(x, min(max(y, self.y_range[0]), self.y_range[1])) for x, y in points]
        self.parts.append(f'<path d="{self.path(inside)} Z" fill="{colour}" '
                          f'fill-opacity="{opacity}"/>')

    def line(self, points, colour, width=2, dashes=""):
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<path d="{self.path(points)}" fill="none" stroke="{colour}" '
                          f'stroke-width="{width}"{dashed}/>')

    def dot(self, x, y, colour, hollow=False, radius=3.6):
        fill = "none" if hollow else colour
        self.parts.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{radius}" '
                          f'fill="{fill}" stroke="{colour}" stroke-width="1.4"/>')

    def bar(self, x, pieces, half_width):
        """Stacked: pieces of (height, colour) from the bottom."""
        bottom = 0.0
        for height, colour in pieces:
            top = bottom + height
            self.parts.append(
                f'<rect x="{self.x(x) - half_width:.1f}" y="{self.y(top):.1f}" '
                f'width="{2 * half_width:.1f}" height="{self.y(bottom) - self.y(top):.1f}" '
                f'fill="{colour}"/>')
            bottom = top


def labelled(tick):
    return tick if isinstance(tick, tuple) else (tick, f"{tick:g}")


def share(value, limits, log):
    low, high = limits
    return math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)


def panels(plots, legend, note="", rows=()):
    """Plots side by side over lines of legends, each of (words, colour, hollow), and a note."""
    width = sum(plot.width for plot in plots)
    bottom = plots[0].height
    height = bottom + 14 + 19 * (1 + len(rows) + bool(note))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             'font-family="system-ui, DejaVu Sans, Helvetica, sans-serif">']
    left = 0
    for plot in plots:
        parts += [f'<g transform="translate({left} 0)">', *plot.parts, "</g>"]
        left += plot.width
    y = bottom + 18
    for line in [legend, *rows]:
        x = LEFT
        for words, colour, hollow in line:
            fill = "none" if hollow else colour
            parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{fill}" stroke="{colour}" '
                         'stroke-width="1.4"/>')
            parts.append(text(x + 9, y, words, "start"))
            x += 36 + 6.1 * len(words)
        y += 19
    if note:
        parts.append(text(LEFT - 4, y, note, "start"))
    return "\n".join(parts + ["</svg>"]) + "\n"
