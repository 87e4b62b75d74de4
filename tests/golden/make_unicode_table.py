#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes inputs/tokenizers/unicode_table.h: where `tokenizers` and Debian 12's libraries differ.

  pip install tokenizers==0.23.3 unicodedata2==16.0.0; make_unicode_table.py

Asks the library for every character whether it has each of PROPERTIES, and compares with the installed
Oniguruma, which must be 6.9.8 (Unicode 14). Takes 10 minutes. Also needs perl.
"""
import ctypes
import pathlib
import subprocess

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
TEXT = "".join(map(chr, CODES))
FIRST = 0x100  # The characters before have the same properties in all versions.
# The properties that patterns of tokenizers may use: general categories, POSIX classes, scripts and a few others.
PROPERTIES = """
Alnum Alpha Blank Cntrl Digit Graph Lower Print Space Upper XDigit Word Adlam Ahom Alphabetic Anatolian_Hieroglyphs
Any Arabic Armenian Assigned Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese
Buhid C Canadian_Aboriginal Carian Caucasian_Albanian Cc Cf Chakma Cham Cherokee Cn Co Common Coptic Cs Cuneiform
Cypriot Cyrillic Deseret Devanagari Dogra Duployan Egyptian_Hieroglyphs Elbasan Ethiopic Georgian Glagolitic Gothic
Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Ideographic
Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Join_Control Kaithi Kannada Katakana
Kayah_Li Kharoshthi Khmer Khojki Khudawadi L LC Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Ll Lm Lo Lowercase Lt Lu
Lycian Lydian M Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Mc Me Medefaidrin Meetei_Mayek
Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Mn Modi Mongolian Mro Multani Myanmar N Nabataean Nd
New_Tai_Lue Newa Nko Nl No Nushu Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian
Old_Sogdian Old_South_Arabian Old_Turkic Oriya Osage Osmanya P Pahawh_Hmong Palmyrene Pau_Cin_Hau Pc Pd Pe Pf Phags_Pa
Phoenician Pi Po Ps Psalter_Pahlavi Rejang Runic S Samaritan Saurashtra Sc Sharada Shavian Siddham SignWriting Sinhala
Sk Sm So Sogdian Sora_Sompeng Soyombo Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri
Tamil Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Ugaritic Unified_Ideograph Unknown Uppercase Vai Warang_Citi
White_Space Yi Z Zanabazar_Square Zl Zp Zs Elymaic Nandinagari Nyiakeng_Puachue_Hmong Wancho Chorasmian Dives_Akuru
Khitan_Small_Script Yezidi Cypro_Minoan Old_Uyghur Tangsa Toto Vithkuqi Kawi Nag_Mundari Garay Gurung_Khema Kirat_Rai
Ol_Onal Sunuwar Todhri Tulu_Tigalari Emoji Emoji_Presentation Emoji_Modifier Emoji_Modifier_Base Emoji_Component
Extended_Pictographic
""".split()
# Scripts that Unicode 15 and 16 added, with their short names.
NEW_SCRIPTS = {
    "Kawi": "Kawi", "Nag_Mundari": "Nagm", "Garay": "Gara", "Gurung_Khema": "Gukh", "Kirat_Rai": "Krai",
    "Ol_Onal": "Onao", "Sunuwar": "Sunu", "Todhri": "Todr", "Tulu_Tigalari": "Tutg",
}
POINTER = ctypes.c_void_p


class Encoding(ctypes.Structure):
    """The beginning of OnigEncodingType."""
    _fields_ = [("length", POINTER), ("name", ctypes.c_char_p), ("sizes", ctypes.c_int * 2)] + [
        (f"function{i}", POINTER) for i in range(7)] + [
        ("type_of", ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, POINTER)), ("has_type", POINTER),
        ("ranges", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.POINTER(ctypes.c_uint),
                                    ctypes.POINTER(ctypes.POINTER(ctypes.c_uint))))]


def in_oniguruma():
    """A function from the name of a property to its characters in the installed Oniguruma."""
    library = ctypes.CDLL("libonig.so.5")
    library.onig_version.restype = ctypes.c_char_p
    assert library.onig_version() == b"6.9.8", library.onig_version()
    utf8 = Encoding.in_dll(library, "OnigEncodingUTF8")
    library.onig_initialize((POINTER * 1)(ctypes.addressof(utf8)), 1)

    def members(name):
        text = ctypes.create_string_buffer(name.encode())
        begin = ctypes.addressof(text)
        number = utf8.type_of(ctypes.addressof(utf8), begin, begin + len(name))
        if number < 0:
            return set()
        first, numbers = ctypes.c_uint(), ctypes.POINTER(ctypes.c_uint)()
        utf8.ranges(number, ctypes.byref(first), ctypes.byref(numbers))
        found = set()
        for i in range(numbers[0]):
            found.update(range(numbers[1 + 2 * i], numbers[2 + 2 * i] + 1))
        return found - set(range(0xD800, 0xE000))

    return members


def in_library(name):
    """The characters of a property in `tokenizers`."""
    form = "[[:word:]]+" if name == "Word" else rf"\p{{{name}}}+"
    step = pre_tokenizers.Split(Regex(form), "removed", invert=True)
    return {ord(c) for word, _ in step.pre_tokenize_str(TEXT) for c in word}


def ranges_of(codes):
    ranges = []
    for code in sorted(codes):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return " ".join(f"{first:X}" if first == last else f"{first:X}-{last:X}" for first, last in ranges)


def changed_properties(in_oniguruma, in_library):
    """Two tables: groups of characters with equal properties, and the groups of each property."""
    own = {name: in_oniguruma(name) for name in PROPERTIES}
    theirs = {name: in_library(name) for name in PROPERTIES}
    names = [name for name in PROPERTIES if any(code >= FIRST for code in own[name] ^ theirs[name])]
    changed = sorted({code for name in names for code in own[name] ^ theirs[name] if code >= FIRST})
    groups = {}
    for code in changed:
        groups.setdefault(tuple(name for name in names if code in theirs[name]), []).append(code)
    lines = [ranges_of(codes) for codes in groups.values()]
    of_names = []
    for name in names:
        label = name + (f"|{NEW_SCRIPTS[name]}" if NEW_SCRIPTS.get(name, name) != name else "")
        of_names.append(" ".join([label] + [f"{i:x}" for i, group in enumerate(groups) if name in group]))
    return lines, of_names


def other_digits(numbers):
    step = pre_tokenizers.Digits(individual_digits=True)
    words = step.pre_tokenize_str("".join("a" + c for c in TEXT) + "a")
    return {ord(word) for word, _ in words if len(word) == 1 and word != "a"} - numbers


def other_punctuation(punctuation):
    step = pre_tokenizers.Punctuation("removed")
    theirs = set(CODES) - {ord(c) for word, _ in step.pre_tokenize_str(TEXT) for c in word}
    return {code for code in theirs ^ punctuation if code >= FIRST}


def lower_cases():
    """Ranges of upper case with the lower case of the first, where Unicode 14 has none."""
    lower = normalizers.Lowercase()
    ranges = []
    for code in CODES:
        to = lower.normalize_str(chr(code))
        if to == chr(code).lower():
            continue
        if ranges and ranges[-1][1] == code - 1 and ord(to) - code == ranges[-1][2] - ranges[-1][0]:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, ord(to)])
    return " ".join((f"{first:X}" if first == last else f"{first:X}-{last:X}") + f">{to:X}" for first, last, to in ranges)


def not_normalized():
    """Gaps of Unicode 9 with characters that normal forms change in Unicode 16."""
    script = ("no warnings; for (0..0x10ffff) { print \"$_\\n\" if !($_ >= 0xd800 && $_ < 0xe000) "
              "&& chr($_) !~ /\\p{Present_In: 9.0}/ }")
    unknown = {int(line) for line in subprocess.run(["perl", "-e", script], capture_output=True, text=True, check=True).stdout.split()}
    affected = {code for code in unknown if unicodedata2.combining(chr(code)) or unicodedata2.decomposition(chr(code))}
    affected |= {ord(part) for code in affected for part in unicodedata2.normalize("NFD", chr(code))} & unknown
    gaps = [text.split("-") for text in ranges_of(unknown).split()]
    gaps = [(int(gap[0], 16), int(gap[-1], 16)) for gap in gaps]
    kept = set()
    for first, last in gaps:
        inside = [code for code in affected if first <= code <= last]
        if inside:
            kept.update(range(min(inside), max(inside) + 1))
    return kept


def main():
    lines, of_names = changed_properties(in_oniguruma(), in_library)
    digits = other_digits(in_library("N"))
    punctuation = other_punctuation(in_library("P"))
    write(lines, of_names, digits, punctuation)


def write(lines, of_names, digits, punctuation):
    newline = "\n"
    text = f'''// SPDX-License-Identifier: Apache-2.0
// Characters whose properties differ between Debian 12's Oniguruma and Hugging Face's tokenizers
// library 0.23.3. Written by tests/golden/make_unicode_table.py; unicode_properties.cc explains it.
#pragma once

#include <string_view>

namespace tessera {{

// Groups of characters with equal properties, one on each line.
inline constexpr std::string_view kChangedCharacters = R"({newline.join(lines)})";

// A property and the hexadecimal numbers of the groups that have it.
inline constexpr std::string_view kChangedProperties = R"({newline.join(of_names)})";

inline constexpr std::string_view kOtherDigits = "{ranges_of(digits)}";

inline constexpr std::string_view kOtherPunctuation =
    "{ranges_of(punctuation)}";

// Upper case > lower case of the first.
inline constexpr std::string_view kLowerCases = "{lower_cases()}";

inline constexpr std::string_view kNotNormalized =
    "{ranges_of(not_normalized())}";

}}  // namespace tessera
'''
    path = pathlib.Path(__file__).parents[2] / "inputs/tokenizers/unicode_table.h"
    path.write_text(text, encoding="utf-8")
    subprocess.run(["clang-format", "-i", str(path)], check=True)


if __name__ == "__main__":
    main()
