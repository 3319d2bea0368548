"""A plan: the commands that end the findings of an examination, in the order in which they are run.

The doctor names for each finding the commands that end it. A plan has each of them once, with what it is for:
first what makes the bookie's files right while it is stopped, then what its replicas bring back while it
runs. A finding that no command ends is kept beside them, for a person. As JSON::

    {
        "kind": "bkctl repair plan",
        "version": 2,
        "examined": ["bkctl", "doctor", ...],
        "working_directory": null,
        "directories": [{"path": "/data/bookie/current", "bookie": "...", "instance": "..."}],
        "steps": [
            {
                "number": 1,
                "command": ["bkctl", ...],
                "needs": "stopped",
                "changes": "...",
                "findings": ["..."],
                "know": ["..."],
            }
        ],
        "by_hand": [{"finding": "...", "instead": "...", "look": "..."}],
    }

Version 1 has neither ``working_directory`` nor ``directories``: such a plan is run where one stands, and on
whichever bookie is there. A program that knows only version 1 refuses version 2, and does not run it unbound.
"""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from bkctl.errors import UsageError

KIND = "bkctl repair plan"
VERSION = 2
_UNBOUND_VERSION = 1
PROGRAM = "bkctl"
_FINDINGS_MAX = 20
#: Linux takes no longer word.
_WORD_BYTES_MAX = (128 << 10) - 1
#: Of 'index rebuild --ledgers': rows are written into that database for a lost disk, and by every salvage.
_LEDGER_ROWS = "index --ledgers"
#: Nouns in the order in which their commands are run; others stand in front of the last. Salvages of journals
#: and of logs need an index.
_ORDER = ("cookie", _LEDGER_ROWS, "bookie", "lastmark", "index", "journal", "entrylog", "gc", "", "ledger")
#: Verbs behind which ledgers may be in limbo.
_SETS_LIMBO = frozenset(
    {
        ("bookie", "rebuild"),
        ("lastmark", "set"),
        ("journal", "salvage"),
        ("entrylog", "salvage"),
        ("entrylog", "quarantine"),
        ("index", "rebuild"),
    }
)

#: Every command that the doctor names, or that a plan adds. A run carries out nothing else: a step that runs
#: a plan would never end.
STEP_VERBS = frozenset(
    {
        ("bookie", "compact"),
        ("bookie", "convert"),
        ("bookie", "init"),
        ("bookie", "rebuild"),
        ("bookies", "init"),
        ("cookie", "create"),
        ("cookie", "update"),
        ("entrylog", "quarantine"),
        ("entrylog", "salvage"),
        ("gc", "run"),
        ("index", "rebuild"),
        ("index", "repair"),
        ("journal", "salvage"),
        ("lastmark", "set"),
        ("ledger", "repair"),
        ("repair", "undo"),
    }
)

#: Verbs whose exit code 1 says that entries are lost, or may be: what differs behind a rebuild is in limbo.
_LISTS_LOSSES = frozenset(
    {
        ("lastmark", "set"),
        ("journal", "salvage"),
        ("entrylog", "salvage"),
        ("index", "rebuild"),
        ("bookie", "rebuild"),
    }
)

#: Findings that end when entries are copied from other replicas while the bookie runs.
_ENDED_BY_REPLICAS = frozenset({"limbo", "missing_entries", "salvaged_location"})

Row = Mapping[str, Any]
Value = TypeVar("Value")


class Needs(enum.StrEnum):
    """The state that the bookie has to be in for a step."""

    STOPPED = "stopped"
    RUNNING = "running"
    EITHER = "either"


@dataclass(slots=True)
class Step:
    """One command; ``changes`` says in a sentence what it does, ``know`` what to know before."""

    number: int
    command: tuple[str, ...]
    needs: Needs
    changes: str
    findings: list[str] = field(default_factory=list)
    know: list[str] = field(default_factory=list)

    @property
    def verb(self) -> tuple[str, ...]:
        """Noun and verb."""
        return verb_of(self.command)

    @property
    def lists_losses(self) -> bool:
        """Whether exit code 1 of the command says that entries are lost, or may be."""
        return self.verb in _LISTS_LOSSES


def verb_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return noun and verb of a command line of this program."""
    return tuple(command[1:3])


@dataclass(frozen=True, slots=True)
class ByHand:
    """A finding that no command ends; ``look`` shows more of it."""

    finding: str
    instead: str
    look: str | None


@dataclass(frozen=True, slots=True)
class Bound:
    """One directory of files (``current``); ``bookie`` is whose it was, None without a readable cookie."""

    path: str
    bookie: str | None
    instance: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """``examined`` is the command line whose findings these are, ``directories`` what it was about.

    ``working_directory`` is where the commands have to be run, None where that does not matter.
    """

    examined: tuple[str, ...]
    steps: tuple[Step, ...]
    by_hand: tuple[ByHand, ...]
    directories: tuple[Bound, ...] = ()
    working_directory: str | None = None


#: Returns the state of the bookie that a command needs, and a text on what it changes, by its words.
Describe = Callable[[Sequence[str]], tuple[Needs, str]]


def plan_of(rows: Iterable[Row], examined: Sequence[str], cluster: Sequence[str], describe: Describe) -> Plan:
    """Return the plan for the doctor's rows; ``cluster`` are the options that name the metadata store.

    Without any the entries of ledgers in limbo are left to a person.
    """
    steps: dict[tuple[str, ...], Step] = {}
    by_hand: list[ByHand] = []
    limbo: dict[str, list[str]] = {}
    for row in rows:
        text = _finding(row)
        if row["kind"] in _ENDED_BY_REPLICAS and cluster and _is_bookie_id(row["bookie"]):
            limbo.setdefault(str(row["bookie"]), []).append(text)
            continue
        if not row["commands"]:
            by_hand.append(ByHand(text, row["instead"] or "", row["next"]))
        for words in row["commands"]:
            step = _step(steps, tuple(words), describe)
            _note(step.findings, text)
            if row["instead"]:
                _note(step.know, row["instead"])
            if step.verb in _SETS_LIMBO and cluster and _is_bookie_id(row["bookie"]):
                limbo.setdefault(str(row["bookie"]), []).append(
                    f"what '{' '.join(step.verb)}' puts into limbo"
                )
    for bookie, findings in sorted(limbo.items()):
        step = _step(steps, (PROGRAM, "ledger", "repair", "--bookie", bookie, *cluster, "--yes"), describe)
        for text in findings:
            _note(step.findings, text)
    ordered = sorted(steps.values(), key=lambda step: (step.needs is Needs.RUNNING, _rank(step), step.number))
    for number, step in enumerate(ordered, 1):
        step.number = number
    return Plan(tuple(examined), tuple(ordered), tuple(by_hand))


def _step(steps: dict[tuple[str, ...], Step], command: tuple[str, ...], describe: Describe) -> Step:
    if command not in steps:
        needs, changes = describe(command)
        steps[command] = Step(len(steps) + 1, command, needs, changes)
    return steps[command]


def _rank(step: Step) -> int:
    noun = step.command[1]
    if step.verb == ("index", "rebuild") and "--ledgers" in step.command:
        noun = _LEDGER_ROWS
    return _ORDER.index(noun) if noun in _ORDER else _ORDER.index("")


def _note(texts: list[str], text: str) -> None:
    if text not in texts and len(texts) < _FINDINGS_MAX:
        texts.append(text)


def _finding(row: Row) -> str:
    where = row["path"] or row["dir"] or row["bookie"] or ""
    return f"{row['severity']} {row['kind']}: {where}: {row['found']}"


def _is_bookie_id(name: object) -> bool:
    # Without a cookie the doctor names a bookie by its directory.
    return isinstance(name, str) and bool(name) and "/" not in name


def encode_plan(plan: Plan) -> bytes:
    """Return the plan as a JSON document."""
    document = {
        "kind": KIND,
        "version": VERSION,
        "examined": list(plan.examined),
        "working_directory": plan.working_directory,
        "directories": [asdict(each) for each in plan.directories],
        "steps": [
            {
                "number": step.number,
                "command": list(step.command),
                "needs": step.needs.value,
                "changes": step.changes,
                "findings": step.findings,
                "know": step.know,
            }
            for step in plan.steps
        ],
        "by_hand": [
            {"finding": one.finding, "instead": one.instead, "look": one.look} for one in plan.by_hand
        ],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def plan_in(data: bytes) -> Plan:
    """Return the plan in a document. Raises UsageError for anything that :func:`encode_plan` never writes."""
    try:
        document = _of_our_kind(json.loads(data))
        steps = tuple(map(_step_in, _typed(document["steps"], list)))
        by_hand = tuple(map(_by_hand_in, _typed(document["by_hand"], list)))
        plan = Plan(_words(document["examined"]), steps, by_hand)
        if document["version"] != _UNBOUND_VERSION:
            directories = tuple(map(_bound_in, _typed(document["directories"], list)))
            where = document["working_directory"]
            where = None if where is None else _path(where)
            plan = replace(plan, directories=directories, working_directory=where)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            "not a plan that 'bkctl repair plan --out FILE' has written (what it prints is no plan file):"
            f" {str(error)[:120]}"
        ) from None
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        raise UsageError("not a plan of 'bkctl repair plan --out FILE': its steps are not numbered from 1 on")
    return plan


def _of_our_kind(document: object) -> dict[str, Any]:
    """Return a document that says it is a plan. Raises TypeError, ValueError."""
    if not isinstance(document, dict):
        raise TypeError(f"a JSON {type(document).__name__}")
    kind, version = document.get("kind"), document.get("version")
    if kind != KIND or type(version) is not int or not _UNBOUND_VERSION <= version <= VERSION:
        raise ValueError(f"kind {kind!r}, version {version!r}")
    return document


def _step_in(one: Any) -> Step:
    command = _words(one["command"])
    if command[1:3] not in STEP_VERBS:
        raise ValueError(f"'{' '.join(map(ascii, command[:3]))}' is no command that a plan has")
    return Step(
        _typed(one["number"], int),
        command,
        Needs(one["needs"]),
        _typed(one["changes"], str),
        _texts(one["findings"]),
        _texts(one["know"]),
    )


def _by_hand_in(one: Any) -> ByHand:
    return ByHand(_typed(one["finding"], str), _typed(one["instead"], str), _text_or_none(one["look"]))


def _bound_in(one: Any) -> Bound:
    return Bound(_path(one["path"]), _text_or_none(one["bookie"]), _text_or_none(one["instance"]))


def _path(value: Any) -> str:
    (path,) = _words([PROGRAM, value])[1:]
    if not path.startswith("/"):
        raise ValueError(f"{ascii(path)[:40]} is no absolute path")
    return path


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _typed(value, str)


def _typed(value: Any, kind: type[Value]) -> Value:
    """Return a value of just this type: of JSON's numbers 1.9 is no 1, and neither is true."""
    if type(value) is not kind:
        raise ValueError(f"{ascii(value)[:40]} where {kind.__name__} is expected")
    return value


def _texts(value: Any) -> list[str]:
    return [_typed(text, str) for text in _typed(value, list)]


def _words(value: Any) -> tuple[str, ...]:
    """Return the words of a command line of this program; a plan runs nothing else.

    A file's name that is no UTF-8 stands in a word as Python reads it, and no other lone surrogate does.
    """
    words = _texts(value)
    if words[:1] != [PROGRAM]:
        raise ValueError(f"{ascii(value)[:40]} is no command line of {PROGRAM}")
    if any("\0" in word or len(os.fsencode(word)) > _WORD_BYTES_MAX for word in words):
        raise ValueError("no command line can have such a word")
    return tuple(words)
