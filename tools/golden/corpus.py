"""A seeded corpus of varied strings for the tokenizer goldens: `texts(specials, seed)`.

Every string is written (corpus.json has the longer pieces) or generated here; nothing is quoted from
elsewhere. Only code points that Unicode 14 knows are drawn, so that the age of a library's tables does not decide a
result.
"""

import json
import pathlib
import random
import unicodedata

WORDS = """
the of and to in is that it was for on are as with they at be this from have or by one had not but what all
were when we there can an your which their said if do will each about how up out them then she many some so
these would other into has more her two like him see time could no make than first been its who now people my
made over did down only way find use may water long little very after words called just where most know river
mountain attention window mask kernel cache token model engine compiler light yesterday orange seven thousand
breakfast umbrella neighbour colour theatre rhythm queue island honest extraordinary misunderstanding
internationalization photosynthesis unbelievable antidisestablishment
""".split()
DATA = json.loads((pathlib.Path(__file__).parent / "corpus.json").read_text(encoding="utf-8"))
SCRIPTS = DATA["scripts"]  # sentences in other scripts and languages
CODE = DATA["code"]  # patterns with {a} {b} {c} for names and {n} for a number
EMOJI = [
    "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f44d\U0001f3fd",
    "\u2764\ufe0f",
    "\U0001f1e9\U0001f1ea",
    "\U0001f3f3\ufe0f\u200d\U0001f308",
    "\u0031\ufe0f\u20e3",
    "\U0001f9d1\U0001f3ff\u200d\U0001f680",
    "\u2603",
    "\U0001f4a9",
    "\U0001f1ef\U0001f1f5",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    "\u00a9\ufe0f",
    "\U0001fae0",
    "\u2728",
    "\U0001f926\u200d\u2642\ufe0f",
]
MARKS = "\u0300\u0301\u0302\u0303\u0308\u030a\u0327\u0328\u0336\u0345\u0489\u05b0\u064b\u093c\u0e31\u20d0\u3099"
SPACES = [
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    "\u00a0",
    "\u3000",
    "\u2003",
    "\u2028",
    "\u2029",
    "\u200b",
    "\u0085",
    "\u1680",
    "\u202f",
    "\u205f",
    "\v",
    "\f",
    "\ufeff",
    " \n",
    "\n ",
    "\t\t",
    "    ",
]
DIGITS = [
    "0123456789",
    "\u0660\u0661\u0662\u0663\u0664",
    "\u0967\u0968\u0969",
    "\uff10\uff11\uff12",
    "\u00b2\u00b3\u00b9",
    "\u2160\u2167\u216b",
    "\u00bd\u00bc",
    "\u2460\u2461",
    "\u4e09\u5341",
    "\U0001d7ce\U0001d7cf",
]
PUNCTUATION = (
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    "\u2013\u2014\u2018\u2019\u201c\u201d\u2026\u00ab\u00bb\u3001\u3002\uff01"
    "\u00b7\u2022\u20ac\u00a3\u00d7\u00f7\u2192\u2211\u221e"
)
CONTRACTIONS = [
    "'s",
    "'t",
    "'re",
    "'ve",
    "'m",
    "'ll",
    "'d",
    "'S",
    "'T",
    "'RE",
    "'VE",
    "'M",
    "'LL",
    "'D",
    "\u2019s",
    "'",
    "''",
    "'x",
    "'l",
    "'v",
    " 's",
    "'\u017f",
]


def drawable(code):
    return not 0xD800 <= code <= 0xDFFF and unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")


def texts(specials, seed):
    """[(text, special)] : about 2,300 strings; `special` says that special tokens in the text are to be parsed."""
    rng = random.Random(seed)
    pick = rng.choice
    out = []

    def add(text, special=False):
        out.append((text, special))

    def word():
        w = pick(WORDS)
        return pick([w, w, w, w.capitalize(), w.upper(), w + pick(CONTRACTIONS)])

    def name():
        return pick(
            [pick(WORDS), pick(WORDS) + "_" + pick(WORDS), pick(WORDS) + pick(WORDS).capitalize(), pick("xyzijkABC")]
        )

    def script_piece(text):
        start = rng.randrange(len(text))
        return text[start : start + rng.randrange(1, 24)]

    add("")
    for code in list(range(0x20)) + [
        0x7F,
        0x80,
        0xA0,
        0xAD,
        0x180E,
        0x2060,
        0xFFFD,
        0xFFFF,
        0xE000,
        0x10FFFF,
        0x10000,
        0x1F600,
    ]:
        add(chr(code))
    for w in WORDS[::6]:
        add(w)
        add(" " + w)
        add(w.capitalize() + pick(CONTRACTIONS))
    for _ in range(220):  # sentences
        sentence = " ".join(word() for _ in range(rng.randrange(2, 10)))
        add(sentence + pick([".", "!", "?", "...", "", ", ", ";\n"]))
    for _ in range(120):  # letters that form no word
        add(
            "".join(
                pick("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-'")
                for _ in range(rng.randrange(1, 30))
            )
        )
    for _ in range(200):  # digits and spaces
        add(
            "".join(
                pick(
                    [
                        pick(pick(DIGITS[:1] * 6 + DIGITS)),
                        pick(pick(DIGITS[:1] * 6 + DIGITS)),
                        " ",
                        "  ",
                        ",",
                        ".",
                        "-",
                        "%",
                        "e",
                        "x",
                        ":",
                    ]
                )
                for _ in range(rng.randrange(1, 20))
            )
        )
    for _ in range(170):  # code
        add(pick(CODE).format(a=name(), b=name(), c=name(), n=rng.randrange(0, 10 ** rng.randrange(1, 7))))
    for text in SCRIPTS.values():
        add(text)
        add(unicodedata.normalize("NFD", text))
        for _ in range(14):
            add(script_piece(text))
        for _ in range(6):
            add(
                script_piece(text)
                + pick(SPACES)
                + word()
                + pick(["", " "])
                + script_piece(pick(list(SCRIPTS.values())))
            )
    for _ in range(120):  # emoji
        add(
            "".join(
                pick([pick(EMOJI), pick(EMOJI), " ", word(), "!", "\u200d", "\ufe0f"])
                for _ in range(rng.randrange(1, 9))
            )
        )
    for _ in range(100):  # combining marks
        add(
            "".join(
                pick([pick("aeiouAEIOUnc") + pick(MARKS) * rng.randrange(0, 4), " ", pick(MARKS)])
                for _ in range(rng.randrange(1, 12))
            )
        )
    for _ in range(240):  # white space
        add(
            "".join(
                pick([pick(SPACES), pick(SPACES), pick(SPACES), " ", word(), pick("1a.")])
                for _ in range(rng.randrange(1, 10))
            )
        )
    for _ in range(60):  # one character many times, up to 300
        unit = pick(
            [
                "a",
                "A",
                "e",
                "0",
                "7",
                " ",
                "\n",
                "\t",
                "-",
                "=",
                "!",
                "\u4e2d",
                "\u00e9",
                "\U0001f600",
                "\u0301",
                ".",
                "ab",
                " a",
                "\n ",
                "#",
                "\u00a0",
                "\u0e2d",
                "\u3042",
                "/",
            ]
        )
        add(unit * rng.choice([2, 3, 5, 8, 16, 17, 31, 32, 33, 63, 64, 100, 255, 300]) + pick(["", "x", " ", "\n"]))
    for unit in ["a", " ", "\n", "=", "1"]:
        add(unit * 1500)
    for _ in range(140):  # punctuation
        add(
            "".join(
                pick([pick(PUNCTUATION), pick(PUNCTUATION), " ", word(), "\n"]) for _ in range(rng.randrange(1, 16))
            )
        )
    for _ in range(160):  # any code point that Unicode 14 assigns
        limit = pick([0x500, 0x2000, 0x10000, 0x10000, 0x20000, 0x32000])
        codes = [rng.randrange(limit) for _ in range(rng.randrange(2, 14))]
        add("".join(chr(code) for code in codes if drawable(code)))
    for _ in range(150):  # everything side by side
        add(
            "".join(
                pick(
                    [
                        word,
                        lambda: pick(SPACES),
                        lambda: pick(EMOJI),
                        lambda: script_piece(pick(list(SCRIPTS.values()))),
                        lambda: pick(PUNCTUATION),
                        lambda: str(rng.randrange(100000)),
                        lambda: " ",
                    ]
                )()
                for _ in range(rng.randrange(2, 20))
            )
        )
    for token in specials:
        for text in (
            token,
            " " + token,
            token + " ",
            "a" + token + "b",
            token + token,
            token[:-1],
            token[1:],
            token.upper(),
        ):
            add(text, True)
            add(text, False)
    for _ in range(90):  # text with special tokens in it, parsed and not
        text = "".join(
            pick(
                [
                    lambda: pick(specials),
                    lambda: pick(specials),
                    lambda: word() + pick(["", " ", "\n"]),
                    lambda: pick(SPACES),
                    lambda: pick(EMOJI),
                    lambda: pick(["system", "user", "assistant", "model"]) + "\n",
                    lambda: pick(PUNCTUATION),
                ]
            )()
            for _ in range(rng.randrange(2, 12))
        )
        add(text, True)
        add(text, False)
    seen = set()
    return [entry for entry in out if not (entry in seen or seen.add(entry))]
