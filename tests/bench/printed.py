# SPDX-License-Identifier: Apache-2.0
"""Tables of a document that a script prints: written into it, or compared with it.

In the document a table stands between `<!-- NAME, by tests/bench/SCRIPT.py -->` and `<!-- end -->`.
"""
import pathlib
import re
import sys

from planned import TREE


def add_printing_flags(parser, name):
    parser.add_argument("--runexp", default=TREE / "build/release/bin/runexp", type=pathlib.Path)
    parser.add_argument("--plans", default=TREE / "build" / name, type=pathlib.Path)
    parser.add_argument("--jobs", default=2, type=int, help="plans at a time")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="into the document")
    what.add_argument("--check", action="store_true", help="against the document")


def table(titles, sides, lines):
    """A table of Markdown; sides is 'l' or 'r' for each column."""
    rule = ["---" if side == "l" else "---:" for side in sides]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [titles, rule, *lines])


def pattern(name):
    return re.compile(rf"(?s)(<!-- {re.escape(name)}, by [^>]*-->\n).*?(\n<!-- end -->)")


def finish(args, document, blocks, drawings):
    """Prints, writes or checks. `blocks` are tables by name, `drawings` are SVGs by path."""
    text = document.read_text() if document.exists() else ""
    changed = text
    for name, block in blocks.items():
        if (args.write or args.check) and not pattern(name).search(changed):
            sys.exit(f"{document}: no '<!-- {name}, by … -->' before a table")
        changed = pattern(name).sub(lambda found: found[1] + block + found[2], changed)
        if not (args.write or args.check):
            print(f"{name}\n\n{block}\n")
    stale = [] if changed == text else [document]
    stale += [path for path, drawn in drawings.items()
              if not path.exists() or path.read_text() != drawn]
    if args.check:
        for path in stale:
            print(f"{path}: differs from what {sys.argv[0]} prints; run it with --write")
        sys.exit(1 if stale else 0)
    if args.write:
        document.write_text(changed)
        for path, drawn in drawings.items():
            path.write_text(drawn)
