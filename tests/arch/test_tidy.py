"""House rules that a linter does not know."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "bkctl"
OURS = sorted(
    path
    for folder in (PACKAGE, REPOSITORY / "bench", REPOSITORY / "man", REPOSITORY / "tests")
    for path in folder.rglob("*.py")
    if not path.name.endswith("_pb2.py")
)
PRODUCT = [path for path in OURS if path.is_relative_to(PACKAGE)]

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 800
# Spelled apart, so that this file does not hold them.
MARKS = (f"{'TO'}DO", f"{'FIX'}ME", f"{'XX'}X", f"{'HA'}CK")
MARK = re.compile(rf"\b(?:{'|'.join(MARKS)})\b")
# Values that several formats share; the formats themselves are laid out in their own modules.
WITHOUT_BYTES = {"__init__", "ledger_metadata_values"}
# Openings that cannot be understood without the neighbours, and the rooms that are free of them.
RIDDLE = re.compile(r"(?:The same|It|All of (?:it|them)|What|Who(?:ever)?|Where|Every path|A text)\b")
OPENED = re.compile(rf'"""{RIDDLE.pattern}')
# Words of the house for report, check, quarantine and during, which a stranger does not take for these.
HOUSE_WORDS = re.compile(r"\b(?:meanwhile|told|tells?|set aside|looked (?:at|for)|looks? at|anew)\b")
# The same in docstrings and comments, where one may look at something; a look, as a noun, is a check.
COMMENT_WORDS = re.compile(
    r"\b(?:meanwhile|anew|told|tells?|(?:sets?|setting|put)\W+aside)\b"
    r"|\b(?:an?|the|one|two|each|every|first|second|next|last)\W+looks?\b(?!-up)",
    re.IGNORECASE,
)
# A sentence whose subject is a clause ("What a flush has written is durable."), and not a question.
CLAUSE = re.compile(r"(?:^|[.:;]\s+)(?:What(?:ever)?|Who(?:ever)?)\s[^.?]*(?:\.|$)")
CODE = re.compile(r"``.*?``|'[^' ]*'")
# The verbs that docstrings of functions open with. A property, and the callback of a group of commands, opens
# with its noun. A command's help says first how safe it is: "[offline] [reads] List ...".
VERBS = (Path(__file__).parent / "docstring_verbs.txt").read_text().split()
NAMES_A_THING = {"property", "cached_property", "setter", "callback"}
SAFETY = re.compile(r"(?:\[\w+\]\s+)+")
OPENING = re.compile(r"([A-Z][a-z]+)(,?)\s+(\S+)")
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}
# A layout is a table (its ruler: two or more runs of =) or, for text formats, an indented sample after "::".
LAYOUT = re.compile(r"^ *={2,}(?: +={2,})+$|::\n\n {4}\S", re.MULTILINE)


def breaches(paths: list[Path], rule: Callable[[str], object]) -> dict[str, object]:
    """What a rule finds in modules: one test for a rule, and not one for each of a thousand modules."""
    found = {str(path.relative_to(REPOSITORY)): rule(path.read_text()) for path in paths}
    return {name: problem for name, problem in found.items() if problem}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """A module and the statements in it, without what they are made of."""
    yield node
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(node, block, ()):
            yield from statements(statement)


def functions_over(source: str, lines_max: int) -> list[str]:
    """Names of the functions that are longer, from ``def`` to the last line."""
    return [
        f"{node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for node in statements(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= lines_max
    ]


def left_over_marks(source: str) -> list[str]:
    """Lines with a note to oneself."""
    if not any(mark in source for mark in MARKS):
        return []
    return [line for line in source.splitlines() if MARK.search(line)]


def prints(source: str) -> list[int]:
    """Line numbers of calls of ``print``."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source if "print(" in source else ""))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]


def riddles(source: str) -> list[str]:
    """First lines of docstrings that open with a pronoun or a clause instead of a noun of their own."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = statements(ast.parse(source if OPENED.search(source) else ""))
    found = [ast.get_docstring(node) for node in nodes if isinstance(node, holders)]
    return [text.partition("\n")[0] for text in found if text and RIDDLE.match(text)]


def prose(source: str) -> Iterator[str]:
    """Yield the docstrings of a module, and its runs of comments, each as one text."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in statements(ast.parse(source)):
        if isinstance(node, holders):
            yield ast.get_docstring(node) or ""
    comments: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.append(token.string.lstrip("#: "))
        elif token.type != tokenize.NL:
            yield " ".join(comments)
            comments = []


def house_words(source: str) -> list[str]:
    """Return words of the house, and sentences whose subject is a clause, in docstrings and comments."""
    if not COMMENT_WORDS.search(source) and not re.search(r"\bWh(?:at|o)", source):
        return []
    found = []
    for text in prose(source):
        plain = " ".join(CODE.sub("X", text).split())
        found += COMMENT_WORDS.findall(plain)
        found += CLAUSE.findall(plain)
    return found


def decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the last names of a function's decorators."""
    for decorator in node.decorator_list:
        named = decorator.func if isinstance(decorator, ast.Call) else decorator
        yield named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")


def openings_without_a_verb(source: str, used: set[str]) -> list[str]:
    """Return first lines of function docstrings without a verb that has an object; add the others' verbs."""
    found = []
    for node in statements(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node) or ""
        safety = SAFETY.match(text)
        text = text[safety.end() if safety else 0 :]
        if not text or NAMES_A_THING.intersection(decorators(node)):
            continue
        opening = OPENING.match(text)
        verb, comma, second = opening.groups() if opening else ("", "", "")
        # "Write, sync and answer ..." has an object, "Count, and set ..." has none. "Sum of ..." is a noun.
        has_object = (second in VERBS) if comma else (second != "of" or verb == "Say")
        if verb.lower() in VERBS and has_object:
            used.add(verb.lower())
        else:
            found.append(text.partition("\n")[0])
    return found


def has_no_layout(source: str) -> bool:
    """Neither a table nor a sample of the bytes stands in the module's docstring."""
    return not LAYOUT.search(ast.get_docstring(ast.parse(source)) or "")


def test_a_module_is_small_enough_to_read() -> None:
    assert not breaches(OURS, lambda source: source.count("\n") > MODULE_LINES_MAX)
    assert not breaches(OURS, lambda source: functions_over(source, FUNCTION_LINES_MAX))


def test_no_notes_to_oneself_are_left() -> None:
    assert not breaches(OURS, left_over_marks)


def test_a_module_is_named_after_what_it_holds() -> None:
    for path in PRODUCT:
        assert not DRAWERS & set(path.relative_to(PACKAGE).with_suffix("").parts), path


def test_a_docstring_begins_with_what_it_is_about() -> None:
    assert not breaches(PRODUCT, riddles)


def test_a_docstring_of_a_function_says_what_it_does() -> None:
    used: set[str] = set()
    found = breaches(PRODUCT, lambda source: openings_without_a_verb(source, used))
    assert not found, "no verb of docstring_verbs.txt with an object; a new verb is added there"
    assert sorted(used) == VERBS, "docstring_verbs.txt has the verbs in use, each once and in order"


def test_an_opening_without_a_verb_is_noticed() -> None:
    texts = (
        "``count`` events.",
        ":meth:`batches`, entry by entry.",
        "The entries of a ledger.",
        "Without a cookie: one directory.",
        "Whether a ledger is fenced.",
        "There is nothing to close.",
        "32 bits of a digest.",
        "Bytes of the peer.",
        "Sum of the values.",
        "Returns the bytes.",
        "Reading the bytes.",
        "Count.",
        "Append; on disk when this returns.",
        "End: nothing follows.",
        "Count, and set the gauges.",
    )
    for text in texts:
        source = f'def f():\n    """{text}"""\n'
        assert openings_without_a_verb(source, set()) == [text]
        assert not openings_without_a_verb(f"@property\n{source}", set())
    for text in ("Count it.", "[offline] [reads] List logs.", "Write, sync and close files.", "Say of it."):
        assert not openings_without_a_verb(f'def f():\n    """{text}"""\n', set())


def test_manuals_are_in_the_words_of_everybody() -> None:
    pages = [*sorted((REPOSITORY / "man").glob("*.[1-8]")), *(REPOSITORY / "docs").glob("cli.md")]
    assert len(pages) > 20
    assert not breaches(pages, HOUSE_WORDS.findall)


def test_docstrings_and_comments_are_in_the_words_of_everybody() -> None:
    assert not breaches(PRODUCT, house_words)


def test_only_commands_print() -> None:
    assert not breaches([path for path in PRODUCT if PACKAGE / "commands" not in path.parents], prints)


def test_a_codec_opens_with_its_byte_layout() -> None:
    paths = [path for path in PRODUCT if path.parent == PACKAGE / "codec" and path.stem not in WITHOUT_BYTES]
    assert not breaches(paths, has_no_layout)


def test_the_rules_notice_what_they_are_for() -> None:
    long = "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX
    assert functions_over(long, FUNCTION_LINES_MAX)
    assert not functions_over(long.removesuffix("    x = 1\n"), FUNCTION_LINES_MAX)
    assert left_over_marks(f"x = 1  # {'TO'}DO: more")
    assert riddles('def f():\n    """The same for several."""\n') == ["The same for several."]
    assert not riddles('def f():\n    """Return the items."""\n')
    assert HOUSE_WORDS.findall("It is set aside, and looked at meanwhile.")
    assert house_words('def f():\n    """Return it.\n\n    Logs are set\n    aside.\n    """\n') == [
        "set aside"
    ]
    assert house_words("# Nobody writes meanwhile.\nx = 1\n") == ["meanwhile"]
    assert house_words("x = 1  # after a second look\n") == ["second look"]
    assert house_words("# It ends. What a flush has\n# written is durable.\nx = 1\n")
    assert not house_words('# Call ``tell``. What is it? A look-up.\nmeanwhile = "told"\n')
    assert prints("if True:\n    print(1)") == [2]
    assert not prints("# print(1)\nx.print(1)")
    assert LAYOUT.search("Text.\n\n====== ====\noffset size\n====== ====\n0      i64")
    assert LAYOUT.search("Lines::\n\n    4\n    bookieHost: host")
    assert not LAYOUT.search("Entries as they lie on disk.\n====")
