#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes inputs/tokenizers/unicode_table.h: where `tokenizers` and Debian 12's libraries differ.

  pip install tokenizers==0.23.3 unicodedata2==16.0.0; make_unicode_table.py

Asks the library for every character whether it has each of these properties, and compares with
the installed Oniguruma, which must be 6.9.8 (Unicode 14). Takes 10 minutes. Also needs perl.
"""
import ctypes
import pathlib
import subprocess

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
TEXT = "".join(map(chr, CODES))
FIRST = 0x100  # The characters before have the same properties in all versions.
# The properties that patterns of tokenizers may use: general categories and classes,
CLASSES = """
Alnum Alpha Blank Cntrl Digit Graph Lower Print Space Upper XDigit Word Alphabetic Any Assigned C Cc Cf Cn Co Cs
Join_Control L LC Ll Lm Lo Lowercase Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Uppercase
White_Space Z Zl Zp Zs
""".split()
# scripts, and a few others.
SCRIPTS = """
Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki Bopomofo
Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Common Coptic
Cuneiform Cypriot Cyrillic Deseret Devanagari Dogra Duployan Egyptian_Hieroglyphs Elbasan Ethiopic Georgian Glagolitic
Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana
Ideographic Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana
Kayah_Li Kharoshthi Khmer Khojki Khudawadi Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani
Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive
Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean New_Tai_Lue Newa Nko Nushu Ogham Ol_Chiki
Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Oriya Osage
Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra
Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Syloti_Nagri Syriac Tagalog
Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Ugaritic
Unified_Ideograph Unknown Vai Warang_Citi Yi Zanabazar_Square Elymaic Nandinagari Nyiakeng_Puachue_Hmong Wancho
Chorasmian Dives_Akuru Khitan_Small_Script Yezidi Cypro_Minoan Old_Uyghur Tangsa Toto Vithkuqi Kawi Nag_Mundari Garay
Gurung_Khema Kirat_Rai Ol_Onal Sunuwar Todhri Tulu_Tigalari Emoji Emoji_Presentation Emoji_Modifier
Emoji_Modifier_Base Emoji_Component Extended_Pictographic
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


def changed(names, in_oniguruma, in_library):
    """The properties that differ, the characters that differ in any of them, and the library's characters of each."""
    own = {name: in_oniguruma(name) for name in names}
    theirs = {name: in_library(name) for name in names}
    differs = {name: {code for code in own[name] ^ theirs[name] if code >= FIRST} for name in names}
    return [name for name in names if differs[name]], sorted(set().union(*differs.values())), theirs


def changed_classes(in_oniguruma, in_library):
    """Two tables: groups of characters with equal classes, and the groups of each class."""
    names, codes, theirs = changed(CLASSES, in_oniguruma, in_library)
    groups = {}
    for code in codes:
        groups.setdefault(tuple(name for name in names if code in theirs[name]), []).append(code)
    of_names = [" ".join([name] + [f"{i:x}" for i, group in enumerate(groups) if name in group]) for name in names]
    return [ranges_of(group) for group in groups.values()], of_names


def changed_scripts(in_oniguruma, in_library):
    names, codes, theirs = changed(SCRIPTS, in_oniguruma, in_library)
    labels = {name: f"{name}|{short}" for name, short in NEW_SCRIPTS.items() if short != name}
    return [f"{labels.get(name, name)} {ranges_of(theirs[name] & set(codes))}".strip() for name in names]


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
    own = in_oniguruma()
    lines, of_names = changed_classes(own, in_library)
    digits = other_digits(in_library("N"))
    punctuation = other_punctuation(in_library("P"))
    write(lines, of_names, changed_scripts(own, in_library), digits, punctuation)


def write(lines, of_names, scripts, digits, punctuation):
    newline = "\n"
    text = f'''// SPDX-License-Identifier: Apache-2.0
// Characters whose properties differ between Debian 12's Oniguruma and Hugging Face's tokenizers
// library 0.23.3. Written by tests/golden/make_unicode_table.py; unicode_properties.cc explains it.
#pragma once

#include <string_view>

namespace tessera {{

// Groups of characters with equal general categories and classes, one on each line.
inline constexpr std::string_view kChangedCharacters = R"({newline.join(lines)})";

// A category or class, and the hexadecimal numbers of the groups that have it.
inline constexpr std::string_view kChangedClasses = R"({newline.join(of_names)})";

// A script or another property, and which of the characters of all these lines have it.
inline constexpr std::string_view kChangedScripts = R"({newline.join(scripts)})";

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
