# SPDX-License-Identifier: Apache-2.0
"""Texts of many languages, code, emoji and broken UTF-8, on which tokenizers are compared (peer.py)."""

import os
import pathlib
import random
import unicodedata

# Letters and signs of scripts: first and last code point, and how many of them make a word.
SCRIPTS = [
    (0x61, 0x7A, 9),
    (0x61, 0x7A, 5),
    (0x61, 0x7A, 3),
    (0xC0, 0x17F, 6),
    (0x3B1, 0x3C9, 8),
    (0x410, 0x44F, 9),
    (0x561, 0x586, 7),
    (0x5D0, 0x5EA, 5),
    (0x620, 0x64A, 6),
    (0x905, 0x94D, 6),
    (0x985, 0x9CD, 6),
    (0xB85, 0xBCD, 6),
    (0xE01, 0xE3A, 12),
    (0x10D0, 0x10F0, 7),
    (0x1200, 0x1248, 5),
    (0x1780, 0x17D3, 7),
    (0x1E00, 0x1EFF, 6),
    (0x3041, 0x3096, 8),
    (0x30A1, 0x30FA, 6),
    (0x4E00, 0x9FA5, 5),
    (0x4E00, 0x5500, 12),
    (0xAC00, 0xD7A3, 4),
    (0x10400, 0x1044F, 5),
    (0x1D400, 0x1D7CB, 4),
    (0x20000, 0x20100, 3),
]
# Any character of Unicode 3.2, which all libraries agree on, and some that are newer.
ODD = [chr(c) for c in range(0x20, 0x3100) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cc")] + list("\u08cd\u0c3c\u2e46\u1ac5\u07fd\u061d\u32ff")
NUMBERS = ["0", "7", "42", "2026", "3.14159", "1,234,567", "٣٤٥", "१२३", "Ⅷ", "½", "x²", "①②", "0x1F", "1e-5", "四"]
SPACES = [" "] * 30 + ["  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t", " \n ", "\n\n\n  ", "\u00a0", "\u3000", "\u2028", "\u180e", "\u200b", "\x85", "\x0b"]
SIGNS = [
    ".",
    ",",
    "!",
    "?",
    "...",
    " - ",
    "—",
    "'s",
    "'S",
    "'t",
    "'re",
    "'LL",
    "'ve",
    "'\u017f",
    "'d",
    '"',
    "«",
    "»",
    "(",
    ")",
    "#",
    "<td>",
    "</td>",
    "@",
    "/",
    "//",
    "{}",
    "=>",
    "!=",
    "\u2581",
    "\u2581\u2581",
    "。",
    "、",
    "¿",
    "🙂",
    "👩‍👩‍👧",
    "🇬🇷",
    "❤️",
    "👍🏽",
    "⚓",
    "🚢",
    "e\u0301",
    "n\u0303o",
    "\u1100\u1161",
    "ﬁ",
    "İ",
    "ß",
    "Ω",
    "\ufeff",
    "<|endoftext|>",
    "</s>",
    "<s>",
    " <mask> ",
    "<unk>",
    "<0x41>",
    "\u0627\u0651",
    "[MASK]",
    "foo",
    "foobar",
]


def mixed_text(rng, size, words, code):
    """About `size` characters of many languages, code, numbers, emoji and odd white space."""
    parts, length = [], 0
    while length < size:
        kind = rng.random()
        if kind < 0.05:
            at = rng.randrange(max(1, len(code) - 4000))
            part = code[at : at + rng.randrange(4000)]
        elif kind < 0.5:
            part = "".join(rng.choice(words) + rng.choice(SPACES) for _ in range(rng.randrange(1, 60)))
        elif kind < 0.6:
            part = rng.choice(SIGNS) * rng.choice([1, 1, 1, 2, 5])
        elif kind < 0.65:
            part = rng.choice(NUMBERS)
        elif kind < 0.7:
            part = "".join(rng.choice(ODD) for _ in range(12))
        else:
            part = rng.choice(words)
            part = part.capitalize() if rng.random() < 0.2 else part.upper() if rng.random() < 0.1 else part
        parts.append(part + (rng.choice(SPACES) if rng.random() < 0.7 else ""))
        length += len(part)
    return "".join(parts)


def broken(rng, text):
    """UTF-8 with some bytes that are none: one in eight thousand bytes."""
    data = bytearray(text.replace("\0", "").encode())
    for _ in range(len(data) // 8000):
        at = rng.randrange(len(data))
        data[at : at + 1] = rng.choice([b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x9a", b"\xed\xa0\x80", b"\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"])
    return bytes(data)


def make_texts(folder, megabytes):
    """Texts of 1 byte to 4 MB; returns those for training as strings."""
    rng = random.Random(1)
    words = []
    for first, last, longest in SCRIPTS:
        weight = 400 if first == 0x61 else 120
        words += ["".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, longest))) for _ in range(weight)]
    words += [a + b for a, b in zip(rng.sample(words, 500), rng.sample(words, 500))]
    library = pathlib.Path(os.__file__).parent
    code = "".join((library / name).read_text(encoding="utf-8") for name in ("argparse.py", "ast.py", "json/decoder.py", "shutil.py"))
    folder.mkdir(parents=True)
    left, number, training = int(megabytes * 1e6), 0, []
    sizes = [4e6 * megabytes / 10, 1e6 * megabytes / 10] + [1e5] * 12 + [1, 2, 3, 10, 100, 1000] * 4
    while left > 0:
        size = int(sizes[number] if number < len(sizes) else rng.choice([200, 3000, 30000]))
        text = mixed_text(rng, size, words, code)[: size if size < 100 else None]
        data = broken(rng, text) if number % 2 else text.replace("\0", "").encode()
        (folder / f"{number:05d}.txt").write_bytes(data)
        if len(training) < 60 and 1000 < size < 200000:
            training.append(text)
        left -= len(data)
        number += 1
    return training
