"""The command `heliograph`: finds the verb, and turns every error into one message and an exit code.

A verb lives in a module of its own that is imported only when it is called: `heliograph --help` must not pay for Spark,
nor `heliograph keys` for Kafka. Exit codes are documented in EXIT_CODES, and decided here and in `watch` alone.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

import click

from heliograph import __version__
from heliograph.cli.out import echo, echo_lines, style
from heliograph.errors import (
    ConfigError,
    ControlError,
    Held,
    HeliographError,
    JavaMissing,
    LoginFailed,
    NoSuchConnector,
    SameCluster,
    Untrusted,
    VersionUnsupported,
    WireError,
)

OK, FAILED, BAD_INPUT, UNREACHABLE, INTERRUPTED = 0, 1, 2, 75, 130  # 75: EX_TEMPFAIL of sysexits.h

# What a person must put right before it is worth starting again; anything else failed while running.
BAD_INPUT_ERRORS = (
    ConfigError,
    ControlError,
    Held,
    JavaMissing,
    LoginFailed,
    NoSuchConnector,
    SameCluster,
    Untrusted,
    VersionUnsupported,
)
# Codes of "no permission" in a broker's answer, by name so that this module needs nothing of the protocol.
REFUSALS = "AUTHORIZATION_FAILED"

EXIT_CODES = """\b
Exit codes:
  0    it went well; `run` and `demo`: also when stopped by Ctrl-C or SIGTERM
  1    it failed while running; `demo`: or the copy differs
  2    bad input, found before anything is written: arguments, the file, a replication factor
       above the brokers, a login or a certificate refused, no permission, Java missing
  3    `plan`: something would change; `adopt`: an MM2 still runs
  75   a cluster is unreachable (or a broker not ready yet): the same call may work later
  130  interrupted before it could end in order (a second Ctrl-C ends at once)
"""

# name -> (module, what --help says of it)
VERBS = {
    "run": ("heliograph.cli.run", "Mirror topics as an mm2.properties file says."),
    "connect": ("heliograph.cli.connect", "A node of a Connect cluster for MirrorMaker 2's connectors."),
    "users": ("heliograph.cli.users", "Who may use the REST API of `connect` and `run`."),
    "demo": ("heliograph.cli.demo", "Embedded clusters mirror each other, or a hub gathers its spokes."),
    "plan": ("heliograph.cli.plan", "What a start would make, alter and copy; writes nothing."),
    "replicas": ("heliograph.cli.replicas", "Replicas of Heliograph's own topics: fewer than wanted? Raise them."),
    "offsets": ("heliograph.cli.offsets", "Where a flow stands, and where it shall go on."),
    "adopt": ("heliograph.cli.adopt", "What is found of a MirrorMaker 2, and what becomes of it."),
    "apply": ("heliograph.cli.apply", "Let a running process take up its edited file."),
    "pause": ("heliograph.cli.pause", "Pause a flow, a topic or a partition that runs."),
    "resume": ("heliograph.cli.resume", "Let what was paused or stopped go on."),
    "stop": ("heliograph.cli.stop", "Stop a flow, a topic or a partition; the rest goes on."),
    "spoke": ("heliograph.cli.spoke", "Spokes of a hub: how they fare; one more or less while it runs."),
    "connectors": ("heliograph.cli.connectors", "Connectors of a Kafka Connect worker: deployed, watched, steered."),
    "doctor": ("heliograph.cli.doctor", "Check this machine, a file and its clusters; say what to fix."),
    "kafka": ("heliograph.cli.kafka", "A real Kafka on this machine, to play with."),
    "warm": ("heliograph.cli.warm", "Prepare this machine once, so that starts are quick."),
    "explain": ("heliograph.cli.explain", "Every effective value of a file, and where it came from."),
    "incidents": ("heliograph.cli.incidents", "What went wrong with records on their way, to the offset."),
    "quarantine": ("heliograph.cli.quarantine", "Records that a target refused: list them, see one, send them again."),
    "messages": ("heliograph.cli.messages", "Look at messages of a topic, on any cluster of a file."),
    "events": ("heliograph.cli.events", "Produce sample events, to try things with."),
    "keys": ("heliograph.cli.keys", "The configuration keys, and which of them are honoured."),
    "metrics": ("heliograph.cli.metrics", "The metrics that `run --http` serves."),
}


class Verbs(click.Group):
    """A group whose commands are imported at their first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(VERBS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            raise click.UsageError(f"no verb {args[0]!r}: the verbs are {', '.join(VERBS)}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, message="heliograph %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Say more on stderr.")
@click.option("--debug", is_flag=True, help="Say everything, tracebacks included.")
@click.pass_context
def cli(ctx: click.Context, verbose: bool, debug: bool) -> None:
    """Kafka topics mirrored between clusters on Spark: by record batches, exactly once, from MirrorMaker 2's files.

    \b
    Examples:
      heliograph demo --seconds 20              see it work; needs Java >= 17 and nothing else
      heliograph doctor mm2.properties          is everything in place?
      heliograph plan mm2.properties            what a start would make, alter and copy
      heliograph explain mm2.properties         what counts, and from which line
      heliograph run mm2.properties             mirror, until Ctrl-C
      heliograph run mm2.properties --master spark://host:7077 -X spark.executor.memory=2g

    Data goes to stdout, talk to stderr. NO_COLOR is honoured.
    """
    from heliograph.cli import logs

    if os.environ.get("NO_COLOR"):
        ctx.color = False
    ctx.obj = {"verbose": verbose, "debug": debug}
    logs.configure(verbose=verbose, debug=debug)
    threading.excepthook = _log_end_of_thread


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    """No thread is gone without a word in the log: Python's own hook would write to a terminal, past the live table."""
    import structlog

    if ended.exc_type is SystemExit or ended.exc_value is None:
        return
    name = ended.thread.name if ended.thread is not None else ""
    log = structlog.get_logger()
    log.error("a thread ended unexpectedly", thread=name, why=repr(ended.exc_value), exc_info=ended.exc_value)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """The exit code of one call. Every error ends here as one message on stderr."""
    try:
        # Outside standalone mode click returns what the verb returned, or the code of its own --help and ctx.exit().
        code = cli.main(list(arguments), prog_name="heliograph", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except click.ClickException as problem:
        problem.show()
        return BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except HeliographError as problem:
        return _report(problem, arguments)
    except BrokenPipeError:
        # The reader of our stdout left (`| head`). Nothing more can be said there, not even by the interpreter's flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as problem:  # the top of the program: what nobody foresaw is still said in one message
        if "--debug" in arguments:
            raise
        say("INTERNAL", f"{type(problem).__name__}: {problem}", "This is a fault of Heliograph; --debug shows where")
        return FAILED


def _report(problem: HeliographError, arguments: Sequence[str]) -> int:
    if "--debug" in arguments:
        import traceback

        echo_lines("".join(traceback.format_exception(problem)).rstrip().split("\n"), err=True)
    if isinstance(problem, ConfigError):  # the ends of its lines are ours: one for each problem
        say_lines(problem.condition, problem.message.split("\n"), problem.fix)
    else:
        say(problem.condition, problem.message, problem.fix)
    return exit_code_of(problem)


def exit_code_of(problem: HeliographError) -> int:
    if isinstance(problem, WireError) and problem.retriable:
        return UNREACHABLE
    name: Any = getattr(problem, "name", "")
    no_permission = isinstance(problem, WireError) and str(name).endswith(REFUSALS)
    return BAD_INPUT if no_permission or isinstance(problem, BAD_INPUT_ERRORS) else FAILED


def say(condition: str, message: str, fix: str = "") -> None:
    """One error on stderr: its stable name, what is the matter, what to do."""
    say_lines(condition, [message], fix)


def say_lines(condition: str, message: Sequence[str], fix: str) -> None:
    head = style(f"error [{condition}]", fg="red", bold=True)
    lines = [f"{head} {message[0]}", *message[1:], *([f"  fix: {fix}"] if fix else [])]
    for line in lines:
        echo(line, err=True, color=False if os.environ.get("NO_COLOR") else None)
