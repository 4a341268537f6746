"""A seeded corpus of varied strings for the tokenizer goldens: `texts(specials, seed)`.

Every string is written or generated here; nothing is quoted from elsewhere. Only code points that Unicode 14 knows are
drawn, so that the age of a library's tables does not decide a result.
"""

import random
import unicodedata

WORDS = """the of and to in is that it was for on are as with they at be this from have or by one had not but what all were
when we there can an your which their said if do will each about how up out them then she many some so these would other into
has more her two like him see time could no make than first been its who now people my made over did down only way find use may
water long little very after words called just where most know river mountain attention window mask kernel cache token model
engine compiler light yesterday orange seven thousand breakfast umbrella neighbour colour theatre rhythm queue island honest
extraordinary misunderstanding internationalization photosynthesis unbelievable antidisestablishment""".split()
SCRIPTS = {
    "chinese": "我们今天去看山上的老房子。天气很好,风也不大;孩子们在河边跑步、唱歌。注意力机制让模型知道该看哪里!计算机每秒可以做三亿次乘法?",
    "japanese": "きのうの夜、わたしは古い映画を見ました。コンピューターが文章を書くのはふしぎですね!東京から大阪まで新幹線で二時間半かかります。「ありがとう」",
    "korean": "오늘은 날씨가 맑고 바람이 시원합니다. 우리는 강가를 따라 천천히 걸었다! 기계가 문장을 읽고 답을 씁니다.",
    "arabic": "ذهبنا صباح اليوم إلى السوق القديم، ثم شربنا القهوة. كَتَبَ المُعَلِّمُ ثلاثة أسطر ١٢٣ على اللوح؟",
    "hebrew": "הלכנו אתמול לים וראינו ספינה גדולה. הַיֶּלֶד קורא ספר חדש.",
    "hindi": "आज सुबह हम पुराने बाज़ार गए और चाय पी। बच्चे नदी के किनारे दौड़ रहे थे। कुल १२३ रुपये लगे।",
    "thai": "วันนี้อากาศดีมากเราเดินไปตามแม่น้ำและกินข้าวกลางวันที่ร้านเล็กๆ",
    "russian": "Сегодня утром мы пошли на старый рынок, а потом пили кофе. Ёлка стоит у окна; сколько стоит эта книга?",
    "greek": "Σήμερα το πρωί πήγαμε στην παλιά αγορά και ήπιαμε καφέ. Πόσο κοστίζει αυτό το βιβλίο;",
    "vietnamese": "Sáng nay chúng tôi đi chợ cũ rồi uống cà phê. Quyển sách này giá bao nhiêu tiền vậy?",
    "turkish": "Bu sabah eski çarşıya gittik, sonra kahve içtik. İstanbul'da ışıklar yanıyor, ığdır uzak.",
    "german": "Heute früh gingen wir über die Straße; Größe, Maß und Übermut. Der Fluß fließt groß und leise.",
    "french": "Ce matin, nous sommes allés au vieux marché ; l'été, où ça ? C'est déjà l'œuvre d'un garçon naïf.",
    "georgian": "დღეს დილით ძველ ბაზარში წავედით და ყავა დავლიეთ.",
    "tamil": "இன்று காலை நாங்கள் பழைய சந்தைக்குச் சென்றோம்.",
    "amharic": "ዛሬ ጠዋት ወደ አሮጌው ገበያ ሄድን።",
}
CODE = [
    "def {a}({b}, {c}=None):\n    if not {b}:\n        return {n}\n    for i in range({n}):\n        {c}[i] += {b}[i] * 0.{n}\n    return {c}\n",
    "for (int {a} = 0; {a} < {n}; ++{a}) {{\n\tstd::vector<{b}> {c}({n}, -1);\n\tassert({c}[{a}] != nullptr && \"bad {b}\");\n}}\n",
    "fn {a}<'a>({b}: &'a str) -> Option<{c}> {{\n    {b}.split(\"::\").nth({n})?.parse().ok()\n}}\n",
    "const {a} = async ({{ {b}, ...rest }}) => {{ await fetch(`/api/${{ {b} }}/{n}`); return {c} ?? null; }};\n",
    "SELECT {a}, COUNT(*) AS {b} FROM {c} WHERE id >= {n} AND name LIKE '%{a}%' GROUP BY {a} HAVING COUNT(*) > {n};\n",
    "#!/bin/sh\nset -eu\n{a}=\"$(grep -c '{b}' \"$1\" || true)\"\n[ \"${a}\" -gt {n} ] && echo \"{c}: ${{{a}:-0}}\" >&2\n",
    "<div class=\"{a} {b}\">\n  <a href=\"/{c}?id={n}&amp;x=1\">{a}</a><br/>\n  <table><tr><td>{n}</td></tr></table>\n</div>\n",
    "{{\"{a}\": [{n}, -{n}.5e-{n}, null, true], \"{b}\": {{\"{c}\": \"\\u00e9\\n\"}}}}",
    "{a}:\n  - {b}: {n}\n    {c}: \"yes\"\n  - &anchor {{ x: *ref, y: ~ }}\n",
    "\\begin{{equation}}\n  \\sum_{{i=1}}^{{{n}}} {a}_i^2 \\leq \\frac{{{b}}}{{{c}}} \\quad \\text{{for }} n \\to \\infty\n\\end{{equation}}",
    "package {a}\n\nimport \"fmt\"\n\nfunc ({b} *{c}) String() string {{\n\treturn fmt.Sprintf(\"%d\\t%v\", {n}, {b})\n}}\n",
    "| {a} | {b} |\n|:---|---:|\n| **{c}** | `{n}` |\n\n> *{a}* -- see [{b}](https://example.org/{c}#{n})\n\n1. {a}\n2. {b}\n",
    "git commit -m '{a}: {b}' && make -j{n} {c} 2>&1 | tee /tmp/{a}.log; cd ~/{b}/..",
    "const uint32_t k{a} = 0x{n}FFu; // {b}'s {c}, don't touch!!! (it's {n}%)\n",
]
EMOJI = ["\U0001F600", "\U0001F468\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466", "\U0001F44D\U0001F3FD", "\u2764\uFE0F", "\U0001F1E9\U0001F1EA",
         "\U0001F3F3\uFE0F\u200D\U0001F308", "\u0031\uFE0F\u20E3", "\U0001F9D1\U0001F3FF\u200D\U0001F680", "\u2603", "\U0001F4A9", "\U0001F1EF\U0001F1F5",
         "\U0001F3F4\U000E0067\U000E0062\U000E0073\U000E0063\U000E0074\U000E007F", "\u00A9\uFE0F", "\U0001FAE0", "\u2728", "\U0001F926\u200D\u2642\uFE0F"]
MARKS = "\u0300\u0301\u0302\u0303\u0308\u030A\u0327\u0328\u0336\u0345\u0489\u05B0\u064B\u093C\u0E31\u20D0\u3099"
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\u00A0", "\u3000", "\u2003", "\u2028", "\u2029", "\u200B", "\u0085", "\u1680", "\u202F", "\u205F",
          "\v", "\f", "\uFEFF", " \n", "\n ", "\t\t", "    "]
DIGITS = ["0123456789", "\u0660\u0661\u0662\u0663\u0664", "\u0967\u0968\u0969", "\uFF10\uFF11\uFF12", "\u00B2\u00B3\u00B9", "\u2160\u2167\u216B", "\u00BD\u00BC", "\u2460\u2461", "\u4E09\u5341",
          "\U0001D7CE\U0001D7CF"]
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" + "\u2013\u2014\u2018\u2019\u201C\u201D\u2026\u00AB\u00BB\u3001\u3002\uFF01\u00B7\u2022\u20AC\u00A3\u00D7\u00F7\u2192\u2211\u221E"
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'VE", "'M", "'LL", "'D", "\u2019s", "'", "''", "'x", "'l", "'v", " 's", "'\u017F"]


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
        return pick([pick(WORDS), pick(WORDS) + "_" + pick(WORDS), pick(WORDS) + pick(WORDS).capitalize(), pick("xyzijkABC")])

    def script_piece(text):
        start = rng.randrange(len(text))
        return text[start : start + rng.randrange(1, 24)]

    add("")
    for code in list(range(0x20)) + [0x7F, 0x80, 0xA0, 0xAD, 0x180E, 0x2060, 0xFFFD, 0xFFFF, 0xE000, 0x10FFFF, 0x10000, 0x1F600]:
        add(chr(code))
    for w in WORDS[::6]:
        add(w)
        add(" " + w)
        add(w.capitalize() + pick(CONTRACTIONS))
    for _ in range(220):  # sentences
        sentence = " ".join(word() for _ in range(rng.randrange(2, 10)))
        add(sentence + pick([".", "!", "?", "...", "", ", ", ";\n"]))
    for _ in range(120):  # letters that form no word
        add("".join(pick("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-'") for _ in range(rng.randrange(1, 30))))
    for _ in range(200):  # digits and spaces
        add("".join(pick([pick(pick(DIGITS[:1] * 6 + DIGITS)), pick(pick(DIGITS[:1] * 6 + DIGITS)), " ", "  ", ",", ".", "-", "%", "e", "x", ":"]) for _ in range(rng.randrange(1, 20))))
    for _ in range(170):  # code
        add(pick(CODE).format(a=name(), b=name(), c=name(), n=rng.randrange(0, 10 ** rng.randrange(1, 7))))
    for text in SCRIPTS.values():
        add(text)
        add(unicodedata.normalize("NFD", text))
        for _ in range(14):
            add(script_piece(text))
        for _ in range(6):
            add(script_piece(text) + pick(SPACES) + word() + pick(["", " "]) + script_piece(pick(list(SCRIPTS.values()))))
    for _ in range(120):  # emoji
        add("".join(pick([pick(EMOJI), pick(EMOJI), " ", word(), "!", "\u200D", "\uFE0F"]) for _ in range(rng.randrange(1, 9))))
    for _ in range(100):  # combining marks
        add("".join(pick([pick("aeiouAEIOUnc") + pick(MARKS) * rng.randrange(0, 4), " ", pick(MARKS)]) for _ in range(rng.randrange(1, 12))))
    for _ in range(240):  # white space
        add("".join(pick([pick(SPACES), pick(SPACES), pick(SPACES), " ", word(), pick("1a.")]) for _ in range(rng.randrange(1, 10))))
    for _ in range(60):  # one character many times, up to 300
        unit = pick(["a", "A", "e", "0", "7", " ", "\n", "\t", "-", "=", "!", "\u4E2D", "\u00E9", "\U0001F600", "\u0301", ".", "ab", " a", "\n ", "#", "\u00A0", "\u0E2D", "\u3042", "/"])
        add(unit * rng.choice([2, 3, 5, 8, 16, 17, 31, 32, 33, 63, 64, 100, 255, 300]) + pick(["", "x", " ", "\n"]))
    for unit in ["a", " ", "\n", "=", "1"]:
        add(unit * 1500)
    for _ in range(140):  # punctuation
        add("".join(pick([pick(PUNCTUATION), pick(PUNCTUATION), " ", word(), "\n"]) for _ in range(rng.randrange(1, 16))))
    for _ in range(160):  # any code point that Unicode 14 assigns
        limit = pick([0x500, 0x2000, 0x10000, 0x10000, 0x20000, 0x32000])
        codes = [rng.randrange(limit) for _ in range(rng.randrange(2, 14))]
        add("".join(chr(code) for code in codes if drawable(code)))
    for _ in range(150):  # everything side by side
        add("".join(pick([word, lambda: pick(SPACES), lambda: pick(EMOJI), lambda: script_piece(pick(list(SCRIPTS.values()))), lambda: pick(PUNCTUATION),
                          lambda: str(rng.randrange(100000)), lambda: " "])() for _ in range(rng.randrange(2, 20))))
    for token in specials:
        for text in (token, " " + token, token + " ", "a" + token + "b", token + token, token[:-1], token[1:], token.upper()):
            add(text, True)
            add(text, False)
    for _ in range(90):  # text with special tokens in it, parsed and not
        text = "".join(pick([lambda: pick(specials), lambda: pick(specials), lambda: word() + pick(["", " ", "\n"]), lambda: pick(SPACES), lambda: pick(EMOJI),
                             lambda: pick(["system", "user", "assistant", "model"]) + "\n", lambda: pick(PUNCTUATION)])() for _ in range(rng.randrange(2, 12)))
        add(text, True)
        add(text, False)
    seen = set()
    return [entry for entry in out if not (entry in seen or seen.add(entry))]
