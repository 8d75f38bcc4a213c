# SPDX-License-Identifier: Apache-2.0
"""The texts that every reference tokenizer encodes: ordinary language, and what breaks tokenizers."""

ENGLISH = [
    "Hello world",
    " Hello world",
    "Hello, World! How are you today?",
    "The ferry leaves at 7:45, and we'll need tickets.",
    "First Citizen: Before we proceed any further, hear me speak.",
    "It was the best of times, it was the worst of times...",
    "A man, a plan, a canal: Panama",
    "unbelievable antidisestablishmentarianism",
    "ALL CAPS SHOUTING and camelCaseWords and snake_case_words and kebab-case-words",
    "To be, or not to be,—that is the question:—",
    "“Quoted” ‘text’ «avec» „Anführung“",
    "e.g. i.e. etc. vs. Mr. Smith, Ph.D.",
    "word",
    "a",
    "the the the the the the",
    "x y  z   w    v",
    "In the beginning the committee had only three members, none of whom (as it later turned out) could read a "
    "map; nevertheless they set out at dawn, crossed the river twice, and by noon they'd reached the wrong "
    "village, where nobody had heard of them. \"That's impossible,\" said the youngest. \"We wrote in March!\"",
]

CONTRACTIONS = [
    "I'm you're he's we've they'll she'd don't",
    "I'M YOU'RE HE'S WE'VE THEY'LL SHE'D DON'T",
    "'s 't 're 've 'm 'll 'd",
    "'S'T'RE'VE'M'LL'D",
    "it's'it's''s'",
    "O'Neill's o'clock rock'n'roll 'tis 'twas",
    "I\u2019m you\u2019re it\u2019s",
    "it'\u017f and IT'\u017f",  # long s folds to s where case is ignored
    "'sunny 'lless 'very 'more",
    "the dogs' bowls, Jess's bowl",
]

NUMBERS = [
    "0", "7", "42", "123", "1234", "12345", "123456", "1234567890",
    "3.14159 -2.5e-10 +1,000,000.00",
    "2024-02-29T23:59:59Z",
    "١٢٣٤ १२३४ 一二三 Ⅳ ½ ² ₃ ①",
    "a1b2c3 1a2b3c x86_64 utf8",
    "192.168.0.1:8080 0xDEADBEEF 1e10 007",
    "$12.50 €99 50% №5 #1",
]

CODE = [
    "def f(x):\n    return x ** 2  # square\n",
    "for (int i = 0; i < n; i++) {\n\tsum += a[i];\n}\n",
    "if (a && b || !c) { return a?.b ?? c[0]; }",
    "SELECT * FROM t WHERE id IN (1, 2, 3);",
    '{"key": ["value", 1, true, null], "nested": {"a": "\\n"}}',
    "<div class=\"a b\"><p>text &amp; more</p></div>",
    "#include <stdio.h>\n\nint main(void)\n{\n    printf(\"%d\\n\", 42);\n}\n",
    "https://example.org/path/to?x=1&y=2#frag",
    "name.surname+tag@example.co.uk",
    "C:\\Users\\name\\file.txt ~/dir/../file",
    "======== ---- ____ **** #### //// ....",
    "a->b->c != d <= e >= f == g += h << i",
    "\\frac{a}{b} $x^2 + y_1$",
    "```python\nprint('hi')\n```",
]

WHITESPACE = [
    "", " ", "  ", "   ", "     ", "\t", "\t\t", " \t ", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", "\r", " \n", "\n ", " \n \n ",
    "\t\n", "\n\t", "a\n", "a \n b", "a  \n\n  b", "a\r\nb\r\nc", "line one\n\nline two\n\n\nline three",
    "  leading", "trailing  ", "  both  ", "a b", "a  b", "a   b", "a        b", "\ttab\ttab", "a \t b",
    "a\u00a0b\u00a0 c", "a\u3000b", "\u2003em\u2009thin", "a\u2028b\u2029c", "a\u0085b", "a\u000bb\u000cc",
    "a\u200bb\u200c\u200dc", "\ufeffbom", "a\u180eb", "a\u001cb\u001fc", "     x\n     y\n", "\n    indented\n        more\n",
    "▁already▁marked ▁ ▁▁", "Ġbyte Ċlevel ġ",
]

LANGUAGES = [
    "Größe, Straße, Übermut und Ärger",
    "L'été dernier, c'était près de l'église où naquit Noël.",
    "¿Dónde está el niño? ¡Aquí!",
    "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "İstanbul'da ılık bir gün; Iğdır",
    "Вчера мы читали книгу. ЁЖ и ёж",
    "Το πλοίο φεύγει στις οκτώ. ΟΔΟΣ οδός",
    "שָׁלוֹם עוֹלָם, מה שלומך?",
    "السلام عليكم، كيف حالك؟ مُحَمَّد",
    "नमस्ते दुनिया, क्षत्रिय हिन्दी में",
    "আমি বাংলায় গান গাই",
    "தமிழ் மொழி அழகானது",
    "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง",
    "Tiếng Việt có nhiều dấu thanh",
    "你好，世界！今天天气很好。",
    "こんにちは、世界。カタカナとひらがなと漢字",
    "안녕하세요 세계 한국어",
    "\u1112\u1161\u11ab\u1100\u1173\u11af",  # Hangul as jamo, which NFC composes
    "mixed 中文 and English и русский وعربي",
    "ꦲꦏ꧀ꦱꦫ ᠮᠣᠩᠭᠣᠯ ᚠᚢᚦ 𐍈𐌰",
    "𝓗𝓮𝓵𝓵𝓸 𝟙𝟚𝟛 𠀀𠮷",
    "ﬁne ﬂow ℌ Å K ① ㎏ ｆｕｌｌ　ｗｉｄｔｈ",
    "e\u0301 a\u030a o\u0308 A\u030a\u0301 q\u0323\u0307 q\u0307\u0323",
    "é vs e\u0301, \u1e69 vs s\u0323\u0307 vs s\u0307\u0323",
    "Z\u0351\u036b\u0343\u036a\u0302a\u0300\u0301\u0302\u0303l\u0334\u0335g\u0336o\u0337",
    "\u0301starts with a mark",
]

EMOJI = [
    "🙂", "🙂🙂🙂", "hello 🌍!", "👍🏽 👩‍💻 👨‍👩‍👧‍👦", "🇩🇪🇫🇷 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "❤️ ❤ ☺︎ ☺️", "a🙂b 🙂c d🙂", "✨100%✨ ©®™", "1️⃣2️⃣ #️⃣", "(╯°□°)╯︵ ┻━┻", "→ ⇒ ∀x∈ℝ: x²≥0 ∑ ∫",
]

CONTROL = [
    "\u0000", "a\u0000b", "\u0001\u0002\u0003", "\u001b[31mred\u001b[0m", "\u007f\u0080\u009f", "bell\u0007back\u0008", "\u202ertl\u202c \u2066iso\u2069",
    "\ue000\uf8ff private", "\uffff\ufffe \U0010ffff", "\ufffd replaced \ufffd\ufffd", "soft\u00adhyphen",
]

REPEATED = [
    "a" * 300, " " * 200, "\n" * 100, "ab" * 100, "0" * 100, "!" * 150, "é" * 60, "🙂" * 25, "中" * 50, "\t" * 40, "\u0301" * 30,
    "the " * 30, "'s" * 30, " \n" * 30, "hahahahahahahahahaha" * 3, "aaa bbb " * 12,
]

# Added tokens of all reference tokenizers; for the others they are text like any other.
ADDED = [
    "<|endoftext|>",
    "Hello<|endoftext|>world",
    "Hello <|endoftext|> world<|endoftext|>",
    "<|endoftext|><|endoftext|>",
    "<|endoftext |> <|ENDOFTEXT|> <|endoftext",
    "<|begin_of_text|>Hello<|eot_id|>",
    "<|start_header_id|>user<|end_header_id|>\n\nHi there<|eot_id|>\n",
    "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n",
    "<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
    "<s>Hello</s>",
    "<s> Hello </s> again</s>",
    "<s><s></s>",
    "[INST] Hello [/INST] Hi</s>",
    "x<unk>y <pad> <mask>",
    "a <mask> b", "a<mask>b", "a \t<mask>  b", "<mask>",
    "<0x41><0x0A> <0xFF>",
    "<word>", "a<word>b", "a <word> b", "<word>,<word>.", "_<word>_ 1<word> é<word>",
    "x  <left>  y", "x  <right>  y", "x  <both>  y", "\n<left>\n<right>\n<both>\n", "<left><left> <right> <right>",
    "<a>", "<a><b>", "<a> <b>", "<a><b><a><b>", "<a><a><b>",
    "New York is in NEW YORK and new york", "RawCase rawcase RAWCASE", "ÉCOLE école E\u0301cole",
    "running ringing sing", "ing", "two words  two words two  words",
]

TEXTS = ENGLISH + CONTRACTIONS + NUMBERS + CODE + WHITESPACE + LANGUAGES + EMOJI + CONTROL + REPEATED + ADDED

# Code points at the borders of classes: Unicode 15 to 16 added or changed them, the tables of BertNormalizer are
# older than they are, or case folding treats them in an unusual way. 24 of them a text, each between letters.
BORDERS = [
    (0x23, 0x23), (0x2A, 0x2A), (0x30, 0x30), (0xA9, 0xAA), (0xAD, 0xAD), (0xBA, 0xBA), (0xDF, 0xDF), (0x130, 0x131),
    (0x17F, 0x17F), (0x2B0, 0x2B0), (0x345, 0x345), (0x363, 0x36F), (0x378, 0x378), (0x399, 0x399), (0x3B9, 0x3B9),
    (0x600, 0x600), (0x7FD, 0x7FD), (0x890, 0x891), (0x897, 0x89F), (0x8CA, 0x8E2), (0x9FE, 0x9FE), (0xAFA, 0xAFF),
    (0xB55, 0xB55), (0xC04, 0xC04), (0xC3C, 0xC3C), (0xCF3, 0xCF3), (0xD00, 0xD00), (0xD3B, 0xD3C), (0xD81, 0xD81),
    (0xEBA, 0xEBA), (0xECE, 0xECE), (0xF82, 0xF83), (0x10FC, 0x10FC), (0x1734, 0x1734), (0x180F, 0x180F),
    (0x1885, 0x1886), (0x1ABF, 0x1ACE), (0x1B4E, 0x1B4F), (0x1B7F, 0x1B7F), (0x1C89, 0x1C8A), (0x1DD3, 0x1DE6),
    (0x1DF6, 0x1DFB), (0x1E9E, 0x1E9E), (0x1FBE, 0x1FBE), (0x200D, 0x200D), (0x203C, 0x203C), (0x20E3, 0x20E3),
    (0x212A, 0x212A), (0x2160, 0x2160), (0x2170, 0x2170), (0x2427, 0x2429), (0x24B6, 0x24B6), (0x24D0, 0x24D0),
    (0x2E80, 0x2E80), (0x2FFC, 0x2FFF), (0x3005, 0x3005), (0x3007, 0x3007), (0x31E4, 0x31E5), (0x31EF, 0x31EF),
    (0xA7CB, 0xA7CD), (0xA7DA, 0xA7DC), (0xA7F2, 0xA7F4), (0xA82C, 0xA82C), (0xA8C5, 0xA8C5), (0xA8FF, 0xA8FF),
    (0xA9BD, 0xA9BD), (0xAB69, 0xAB69), (0xE000, 0xE000), (0xFE0F, 0xFE0F), (0x10D24, 0x10D27), (0x10D50, 0x10D65),
    (0x10D69, 0x10D6D), (0x10D70, 0x10D85), (0x10EAB, 0x10EAC), (0x10EC2, 0x10EC4), (0x10EFC, 0x10EFF),
    (0x10F46, 0x10F50), (0x10F82, 0x10F85), (0x11070, 0x11070), (0x11073, 0x11074), (0x11080, 0x11081),
    (0x110C2, 0x110C2), (0x110CD, 0x110CD), (0x111C9, 0x111C9), (0x111CF, 0x111CF), (0x1123E, 0x11241),
    (0x1133B, 0x1133B), (0x113B8, 0x113C0), (0x113C2, 0x113C2), (0x113C5, 0x113C5), (0x113C7, 0x113CA),
    (0x113CC, 0x113CE), (0x113D0, 0x113D0), (0x113D2, 0x113D2), (0x113E1, 0x113E2), (0x11438, 0x1143F),
    (0x11442, 0x11444), (0x11446, 0x11446), (0x1145E, 0x1145E), (0x116D0, 0x116E3), (0x1171E, 0x1171E),
    (0x1182F, 0x11837), (0x11839, 0x1183A), (0x1193B, 0x1193C), (0x1193E, 0x1193E), (0x11943, 0x11943),
    (0x119D4, 0x119D7), (0x119DA, 0x119DB), (0x119E0, 0x119E0), (0x11A01, 0x11A0A), (0x11A33, 0x11A38),
    (0x11A3B, 0x11A3E), (0x11A47, 0x11A47), (0x11A51, 0x11A56), (0x11A59, 0x11A5B), (0x11A8A, 0x11A96),
    (0x11A98, 0x11A99), (0x11B00, 0x11B09), (0x11C30, 0x11C36), (0x11C38, 0x11C3D), (0x11C3F, 0x11C3F),
    (0x11C92, 0x11CA7), (0x11CAA, 0x11CB0), (0x11CB2, 0x11CB3), (0x11CB5, 0x11CB6), (0x11D31, 0x11D36),
    (0x11D3A, 0x11D3A), (0x11D3C, 0x11D3D), (0x11D3F, 0x11D45), (0x11D47, 0x11D47), (0x11D90, 0x11D91),
    (0x11D95, 0x11D95), (0x11D97, 0x11D97), (0x11EF3, 0x11EF4), (0x11F00, 0x11F01), (0x11F03, 0x11F03),
    (0x11F34, 0x11F3A), (0x11F3E, 0x11F40), (0x11F42, 0x11F42), (0x11F5A, 0x11F5A), (0x1342F, 0x13455),
    (0x13460, 0x13461), (0x13C2D, 0x13C2D), (0x143F9, 0x143FA), (0x1611E, 0x1612F), (0x16F4F, 0x16F4F),
    (0x16FE4, 0x16FE4), (0x18CFF, 0x18CFF), (0x1B132, 0x1B132), (0x1B155, 0x1B155), (0x1CC00, 0x1CC01),
    (0x1CC7C, 0x1CC7C), (0x1CCF8, 0x1CCF9), (0x1CD00, 0x1CD01), (0x1CDD9, 0x1CDD9), (0x1CEB2, 0x1CEB3),
    (0x1CF00, 0x1CF2D), (0x1CF30, 0x1CF46), (0x1D2C0, 0x1D2D3), (0x1DF25, 0x1DF2A), (0x1E000, 0x1E006),
    (0x1E008, 0x1E018), (0x1E01B, 0x1E021), (0x1E023, 0x1E024), (0x1E026, 0x1E02A), (0x1E030, 0x1E031),
    (0x1E04E, 0x1E04E), (0x1E06C, 0x1E06D), (0x1E08F, 0x1E08F), (0x1E130, 0x1E136), (0x1E2AE, 0x1E2AE),
    (0x1E2EC, 0x1E2EF), (0x1E4EC, 0x1E4EF), (0x1E5EE, 0x1E5EF), (0x1E944, 0x1E94A), (0x1F1E6, 0x1F1E6),
    (0x1F3FB, 0x1F3FB), (0x1F600, 0x1F600), (0x1F6DC, 0x1F6DC), (0x1F774, 0x1F776), (0x1F77B, 0x1F77F),
    (0x1F7D9, 0x1F7D9), (0x1F8B2, 0x1F8BB), (0x1F8C0, 0x1F8C1), (0x1FA75, 0x1FA77), (0x1FA87, 0x1FA89),
    (0x1FA8F, 0x1FA8F), (0x1FAAD, 0x1FAAF), (0x1FABB, 0x1FABF), (0x1FAC6, 0x1FAC6), (0x1FACE, 0x1FACF),
    (0x1FADA, 0x1FADC), (0x1FADF, 0x1FADF), (0x1FAE8, 0x1FAE9), (0x1FAF7, 0x1FAF8), (0x1FBCB, 0x1FBEF),
    (0x2B739, 0x2B739), (0x2EBF0, 0x2EBF1), (0x2ED26, 0x2ED26), (0x2EE5C, 0x2EE5D), (0x31350, 0x31351),
    (0x31B7F, 0x31B7F), (0x323AE, 0x323AF), (0xE0041, 0xE0041),
]
_codes = [code for first, last in BORDERS for code in range(first, last + 1)]
BORDER_TEXTS = ["".join(f"a{chr(code)}b {chr(code)}" for code in _codes[at : at + 24]) for at in range(0, len(_codes), 24)]
