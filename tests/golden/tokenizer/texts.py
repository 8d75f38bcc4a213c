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
