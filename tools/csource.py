"""The tools' view of C: a source file with comments and literals blanked out, its functions, its variables.

No compiler: braces are counted. That is enough for code that clang-format has laid out.
"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = (".c", ".h", ".inc", ".cu", ".cuh")
TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M | re.S)
CPLUSPLUS = re.compile(r"^#ifdef __cplusplus\n.*?^#endif", re.M | re.S)


def blank(match):
    """Replaces the match by spaces; line ends stay."""
    return re.sub(r"[^\n]", " ", match.group())


def blank_token(match):
    text = match.group()
    return blank(match) if text[0] == "/" else text[0] + " " * (len(text) - 2) + text[-1]


def without_braces(text):
    """Removes braces and the text between them."""
    kept, depth = [], 0
    for character in text:
        depth += character == "{"
        kept.append(character if depth == 0 else " ")
        depth -= character == "}"
    return "".join(kept)


def files(root, folders, suffixes=CODE):
    """Files below the folders of `root`, in order, without build folders and hidden ones."""
    found = []
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            folders_above = path.relative_to(root).parts[:-1]
            hidden = path.name.startswith(".") or any(p.startswith((".", "build", "__")) for p in folders_above)
            if path.is_file() and path.name.endswith(suffixes) and not hidden:
                found.append(path)
    return found


class Source:
    def __init__(self, path, root=ROOT):
        self.path = path
        self.name = str(path.relative_to(root))
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.split("\n")
        self.code = TOKEN.sub(blank_token, self.text)  # without comments and the content of literals
        self.bare = DIRECTIVE.sub(blank, CPLUSPLUS.sub(blank, self.code))  # and without directives
        self.functions, self.variables, self.balanced = [], [], True
        self.scan()

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def scan(self):
        """Divides the file into statements of the outermost level."""
        start, depth, opened, head = 0, 0, 0, ""
        for match in re.finditer(r"[{};]", self.bare):
            at, sign = match.start(), match.group()
            if sign == "{":
                if depth == 0:
                    opened, head = at, self.bare[start:at]
                depth += 1
            elif sign == "}":
                depth -= 1
                if depth == 0 and self.is_function(head):
                    name = re.search(r"(\w+)\s*\(", head).group(1)
                    self.functions.append((name, self.line_of(opened), self.line_of(at), head))
                    self.inner_statics(opened, at)
                    start = at + 1
            elif depth == 0:
                self.variable(self.bare[start:at], start)
                start = at + 1
        self.balanced = depth == 0

    @staticmethod
    def is_function(head):
        return "=" not in head and re.search(r"\w+\s*\(.*\)\s*(__attribute__\s*\(\(.*\)\)\s*)?\w*\s*$", head, re.S)

    def inner_statics(self, begin, end):
        for match in re.finditer(r"\bstatic\b", self.bare[begin:end]):
            start, depth = begin + match.start(), 0
            for at in range(start, end):
                depth += {"{": 1, "}": -1}.get(self.bare[at], 0)
                if depth == 0 and self.bare[at] == ";":
                    self.variable(self.bare[start:at], start)
                    break

    def variable(self, statement, start):
        """Records a variable that can change. `statement` is a declaration without its semicolon."""
        plain = re.sub(r"^\s*template\s*<[^{};]*>\s*(?=(struct|union)\b)", "", without_braces(statement))
        if self.name.endswith(".h") and not re.search(r"\b(static|extern)\b", plain):
            return  # a declaration in a header
        declared = plain.split("=", 1)[0].strip()
        words = declared.split()
        if not words or words[0] in ("typedef", "_Static_assert", "static_assert", "return", "goto"):
            return
        if "(" in declared and not re.search(r"\(\s*\*", declared):
            return  # a prototype or a macro
        if re.search(r"\)\s*\(", declared) and "=" not in plain and "static" not in words:
            return  # a prototype that returns a function
        if len(words) < 2 or re.fullmatch(r"(struct|union|enum)\s+\w+", declared) or "_Thread_local" in words:
            return
        if words[0] in ("enum", "struct", "union") and len(words) == 2:
            return
        if words[0] == "enum" and "=" not in plain and not re.search(r"\w+\s+\w+\s+\w+$", declared):
            return
        pointer = declared.rfind("*")
        if re.search(r"\bconst\b", declared[pointer + 1:] if pointer >= 0 else declared):
            return
        name = re.search(r"(\w+)\s*\)?\s*(\[[^\]]*\]\s*|\([^()]*\)\s*)*$", declared)
        lead = len(statement) - len(statement.lstrip())
        self.variables.append((name.group(1) if name else declared, self.line_of(start + lead)))
