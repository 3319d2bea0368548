"""The report of ``bkctl doctor``: findings as rows or as text, the last line, the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from bkctl.commands.doctor.advice import advice_lines
from bkctl.commands.frame.next_steps import next_keys
from bkctl.errors import UsageError

if TYPE_CHECKING:
    from bkctl.admin.doctor.finding import Finding


@dataclass(slots=True)
class Report:
    """Counts what passes by. ``skipped_digests``: the digests of entries in logs were not looked at."""

    checks: int = 0
    skipped_digests: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def watch(self, found: Iterable[tuple[str | None, Finding]], *, notes: bool) -> Iterator[dict[str, Any]]:
        """Count findings, and yield those that are shown as rows."""
        for bookie, finding in found:
            severity = finding.severity.value
            self.counts[severity] += 1
            if severity != "note" or notes:
                yield _row(bookie, finding)

    def close(self, *, notes: bool) -> None:
        """Write the last line on stderr, and end with the exit code."""
        errors, warnings, hidden = self.counts["error"], self.counts["warning"], self.counts["note"]
        from bkctl.reporting import counted

        if not self.checks:
            raise UsageError("none of the chosen checks can be done on what was named; see --list-checks")
        unchecked = self.counts["unchecked"]
        text = counted(self.checks, "check")
        if errors or warnings:
            text += f": {counted(errors, 'error')}, {counted(warnings, 'warning')}"
        else:
            text += ", nothing found" + (" in what could be checked" if unchecked else "")
        if unchecked:
            text += f"; {unchecked} with unchecked entries"
        if self.skipped_digests:
            text += "; the digests of entries in logs were not checked (--deep checks them)"
        if hidden:
            text += f"; {counted(hidden, 'note')}" + ("" if notes else " (--notes shows them)")
        typer.echo(f"bkctl: {text}", err=True)
        raise typer.Exit(3 if unchecked else int(bool(errors or warnings)))


def _row(bookie: str | None, finding: Finding) -> dict[str, Any]:
    return {
        "bookie": bookie,
        "check": finding.check,
        "kind": finding.kind,
        "severity": finding.severity.value,
        "dir": finding.dir,
        "path": finding.path,
        "ledger": finding.ledger,
        "log_id": finding.log_id,
        "journal_id": finding.journal_id,
        "offset": finding.offset,
        "count": finding.count,
        "found": finding.found,
        "expected": finding.expected,
        **next_keys(finding.next),
        "steps": [step._asdict() for step in finding.next.steps],
    }


def block(row: Mapping[str, Any]) -> str:
    """Return a finding as text for people: in a table's cell the next command could not be copied."""
    where = row["path"] or row["dir"] or row["bookie"]
    at = "" if row["offset"] is None else f", offset {row['offset']}"
    lines = [
        f"{row['severity'].upper()} {row['check']}: {where}{at}",
        f"  found:    {row['found']}",
        f"  expected: {row['expected']}",
    ]
    if row["next"] is not None:
        lines.append(f"  {'next:    ' if row['commands'] else 'look:    '} {row['next']}")
    if row["instead"] is not None:
        lines += advice_lines("know:" if row["commands"] else "do:", row)
    return (
        "\n".join("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line) for line in lines)
        + "\n\n"
    )
