"""`heliograph doctor [FILE]`: is everything in place? One line a check, with the fix for what is not. Writes nothing.

The verb and the printing; what is checked of the machine is in `machine`, of a file and its clusters in `clinic`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from heliograph.cli.logs import log_options
from heliograph.cli.out import echo, echo_document, style

BAD, UNREACHABLE = 2, 75


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `ok` None: it works, but somebody should know."""

    name: str
    ok: bool | None
    detail: str
    fix: str = ""
    retriable: bool = False  # it may be better in a moment, by itself: a cluster that is away


@click.command("doctor", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--lenient", is_flag=True, help="Warn about unknown keys and Java classes instead of refusing the file.")
@log_options
def command(file: Path | None, output: str, lenient: bool) -> int:
    """Check this machine and, with FILE, an mm2.properties and its clusters. Writes nothing anywhere.

    Of the machine: Java (version and modules), Python and packages, memory, ports, disk. Of FILE: that it can be
    read, that each cluster is reached and lets us in, that no two aliases are one cluster, that topics may be read on
    the source and created and written on the target, that existing copies have enough partitions, and that what is
    switched on beside the copying is allowed: settings, offset syncs, checkpoints, group offsets, heartbeats, ACLs.

    \b
    Examples:
      heliograph doctor
      heliograph doctor mm2.properties -o json

    Exit codes: 0 all is well (warnings included), 2 something must be put right, 75 nothing but a cluster that
    cannot be reached: the same call may work later.
    """
    findings = []
    for finding in _examine(file, lenient):
        findings.append(finding)
        if output == "text":
            _say(finding)
    wrong = [finding for finding in findings if finding.ok is False]
    if output == "json":
        echo_document(json.dumps({"ok": not wrong, "checks": [asdict(finding) for finding in findings]}, indent=2))
    elif wrong:
        echo(f"{len(wrong)} of {len(findings)} checks failed: {', '.join(finding.name for finding in wrong)}")
    else:
        echo(f"all {len(findings)} checks passed")
    return code_of(wrong)


def code_of(wrong: Sequence[Finding]) -> int:
    """Of what is wrong. A cluster that is away hides what is wrong with it; what is known to be wrong counts more."""
    if not wrong:
        return 0
    return UNREACHABLE if all(finding.retriable for finding in wrong) else BAD


def _examine(file: Path | None, lenient: bool) -> Iterator[Finding]:
    from heliograph.cli import machine

    yield from machine.examine()
    if file is not None:
        from heliograph.cli import clinic

        yield from clinic.examine(file, lenient=lenient)


def _say(finding: Finding) -> None:
    sign, colour = {True: ("✓", "green"), None: ("!", "yellow"), False: ("✗", "red")}[finding.ok]
    echo(f"{style(sign, fg=colour)} {finding.name}: {finding.detail}")
    if finding.fix and finding.ok is not True:
        echo(f"    fix: {finding.fix}")
